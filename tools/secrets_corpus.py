"""A corpus of synthetic secrets in the surroundings agents leave them in, made from a seed; nothing in it is real.

A case is a text, the secret inside it, and its class: `format` (the secret has a form of its own), `named` (only its
surroundings give it away) or `encoded` (base64 of one of the former).
"""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable
from typing import NamedTuple

Random = random.Random
Maker = Callable[[Random], str]
ALNUM = string.ascii_letters + string.digits
SAFE = ALNUM + "-_"
HEX = "0123456789abcdef"
UPPER = string.ascii_uppercase + string.digits
LOWER = string.ascii_lowercase + string.digits
BASE32 = string.ascii_uppercase + "234567"
BASE64 = ALNUM + "+/"
SYMBOLS = "!#%^*_+~?.@"


class Case(NamedTuple):
    """One secret in its surroundings."""

    kind: str
    sort: str
    """format, named or encoded."""
    around: str
    """The name of the surroundings."""
    secret: str
    text: str


def some(random_: Random, letters: str, least: int, most: int = 0) -> str:
    """Letters at random."""
    return "".join(random_.choices(letters, k=random_.randint(least, most or least)))


def _uuid(random_: Random) -> str:
    return "-".join(some(random_, HEX, size) for size in (8, 4, 4, 4, 12))


def _after(prefix: str, letters: str, least: int, most: int = 0, suffix: str = "") -> Maker:
    return lambda random_: prefix + some(random_, letters, least, most) + suffix


def _jwt(random_: Random) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    claims = {"sub": some(random_, string.digits, 8), "iat": random_.randrange(10**9), "role": some(random_, LOWER, 6)}
    return f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part(claims)}.{some(random_, SAFE, 43)}"


def _pem(random_: Random) -> str:
    kind = random_.choice(["RSA ", "EC ", "OPENSSH ", ""])
    lines = [some(random_, BASE64, 64) for _line in range(random_.randint(4, 20))] + [some(random_, BASE64, 10, 60)]
    return f"-----BEGIN {kind}PRIVATE KEY-----\n" + "\n".join(lines) + f"\n-----END {kind}PRIVATE KEY-----"


FORMATS: dict[str, Maker] = {
    "anthropic": _after("sk-ant-api03-", SAFE, 86, 95),
    "anthropic-oauth": _after("sk-ant-oat01-", SAFE, 86, 95),
    "openai-project": _after("sk-proj-", SAFE, 48, 156),
    "openai-old": lambda random_: f"sk-{some(random_, ALNUM, 20)}T3BlbkFJ{some(random_, ALNUM, 20)}",
    "deepseek": _after("sk-", HEX, 32),
    "openrouter": _after("sk-or-v1-", HEX, 64),
    "huggingface": _after("hf_", ALNUM, 34),
    "replicate": _after("r8_", ALNUM, 37),
    "groq": _after("gsk_", ALNUM, 52),
    "perplexity": _after("pplx-", ALNUM, 48),
    "xai": _after("xai-", ALNUM, 80),
    "langsmith": lambda random_: f"lsv2_pt_{some(random_, HEX, 32)}_{some(random_, HEX, 10)}",
    "nvidia": _after("nvapi-", SAFE, 64),
    "aws-access-key": _after("AKIA", BASE32, 16),
    "aws-temporary-key": _after("ASIA", BASE32, 16),
    "google-api-key": _after("AIza", SAFE, 35),
    "google-oauth": _after("ya29.a0", SAFE, 100, 180),
    "google-client-secret": _after("GOCSPX-", SAFE, 28),
    "azure-storage": lambda random_: f"AccountKey={some(random_, BASE64, 86)}==",
    "azure-client-secret": lambda random_: f"{some(random_, ALNUM, 3)}8Q~{some(random_, SAFE, 34)}",
    "github-classic": _after("ghp_", ALNUM, 36),
    "github-oauth": _after("gho_", ALNUM, 36),
    "github-app": _after("ghs_", ALNUM, 36),
    "github-fine": lambda random_: f"github_pat_{some(random_, ALNUM, 22)}_{some(random_, ALNUM, 59)}",
    "gitlab": _after("glpat-", SAFE, 20),
    "gitlab-runner": _after("glrt-", SAFE, 20),
    "bitbucket": _after("ATBB", ALNUM, 32),
    "atlassian": _after("ATATT3xFfGF0", SAFE, 180),
    "npm": _after("npm_", ALNUM, 36),
    "pypi": _after("pypi-AgEIcHlwaS5vcmc", SAFE, 120, 170),
    "rubygems": _after("rubygems_", HEX, 48),
    "docker-hub": _after("dckr_pat_", SAFE, 27),
    "slack-bot": lambda random_: (
        f"xoxb-{some(random_, string.digits, 12)}-{some(random_, string.digits, 12)}-{some(random_, ALNUM, 24)}"
    ),
    "slack-user": lambda random_: (
        f"xoxp-{some(random_, string.digits, 12)}-{some(random_, string.digits, 12)}-{some(random_, HEX, 32)}"
    ),
    "slack-webhook": lambda random_: (
        f"https://hooks.slack.com/services/T{some(random_, UPPER, 9)}/B{some(random_, UPPER, 9)}/"
        + some(random_, ALNUM, 24)
    ),
    "discord-webhook": lambda random_: (
        f"https://discord.com/api/webhooks/{some(random_, string.digits, 18)}/{some(random_, SAFE, 68)}"
    ),
    "stripe-live": _after("sk_live_", ALNUM, 24, 99),
    "stripe-restricted": _after("rk_live_", ALNUM, 24),
    "stripe-webhook": _after("whsec_", ALNUM, 32),
    "sendgrid": lambda random_: f"SG.{some(random_, SAFE, 22)}.{some(random_, SAFE, 43)}",
    "mailgun": _after("key-", HEX, 32),
    "mailchimp": lambda random_: f"{some(random_, HEX, 32)}-us{random_.randint(1, 21)}",
    "twilio": _after("SK", HEX, 32),
    "telegram": lambda random_: f"{some(random_, '123456789', 9, 10)}:AA{some(random_, SAFE, 33)}",
    "digitalocean": _after("dop_v1_", HEX, 64),
    "databricks": _after("dapi", HEX, 32),
    "doppler": _after("dp.pt.", ALNUM, 43),
    "vault": _after("hvs.", SAFE, 90, 110),
    "terraform": lambda random_: f"{some(random_, ALNUM, 14)}.atlasv1.{some(random_, SAFE, 67)}",
    "pulumi": _after("pul-", HEX, 40),
    "supabase": _after("sbp_", HEX, 40),
    "planetscale": _after("pscale_tkn_", SAFE, 43),
    "netlify": _after("nfp_", ALNUM, 40),
    "tailscale": lambda random_: f"tskey-auth-{some(random_, ALNUM, 12)}-{some(random_, ALNUM, 32)}",
    "shopify": _after("shpat_", HEX, 32),
    "square": _after("sq0atp-", SAFE, 22),
    "linear": _after("lin_api_", ALNUM, 40),
    "notion": _after("ntn_", ALNUM, 46),
    "airtable": lambda random_: f"pat{some(random_, ALNUM, 14)}.{some(random_, HEX, 64)}",
    "figma": _after("figd_", SAFE, 40),
    "postman": lambda random_: f"PMAK-{some(random_, HEX, 24)}-{some(random_, HEX, 34)}",
    "newrelic": _after("NRAK-", UPPER, 27),
    "grafana": lambda random_: f"glsa_{some(random_, ALNUM, 32)}_{some(random_, HEX, 8)}",
    "sentry": _after("sntryu_", HEX, 64),
    "sonar": _after("sqp_", HEX, 40),
    "age": _after("AGE-SECRET-KEY-1", UPPER, 58),
    "jwt": _jwt,
    "pem": _pem,
}


def _password(random_: Random) -> str:
    """Eight characters or more with upper, lower, digit and symbol, as a form asks for."""
    must = [random_.choice(one) for one in (string.ascii_lowercase, string.ascii_uppercase, string.digits, SYMBOLS)]
    rest = [*must, *random_.choices(ALNUM + SYMBOLS, k=random_.randint(5, 16))]
    first = random_.choice(ALNUM)
    random_.shuffle(rest)
    return first + "".join(rest).rstrip(".?!*:") + random_.choice(ALNUM)


NAMED: dict[str, tuple[tuple[str, ...], Maker]] = {
    "password": (("password", "DB_PASSWORD", "db.password", "POSTGRES_PASSWORD", "adminPassword", "passwd"), _password),
    "aws-secret": (("aws_secret_access_key", "AWS_SECRET_ACCESS_KEY", "secretAccessKey"), _after("", BASE64, 40)),
    "api-key-hex": (("api_key", "DATADOG_API_KEY", "apiKey", "x_api_key", "MISTRAL_API_KEY"), _after("", HEX, 32)),
    "api-key-long": (("API_KEY", "COHERE_API_KEY", "service_api_key", "apikey"), _after("", ALNUM, 40)),
    "client-secret": (("client_secret", "OAUTH_CLIENT_SECRET", "clientSecret", "app_secret"), _after("", SAFE, 32, 48)),
    "token-uuid": (("SNYK_TOKEN", "api_token", "HEROKU_API_KEY", "access_token"), _uuid),
    "token-long": (("auth_token", "CLOUDFLARE_API_TOKEN", "refreshToken", "BOT_TOKEN"), _after("", SAFE, 36, 64)),
    "signing-key": (("JWT_SECRET", "SECRET_KEY", "signing_key", "session_secret"), _after("", ALNUM, 50)),
    "encryption-key": (("ENCRYPTION_KEY", "master_key", "private_key"), _after("", BASE64, 43, suffix="=")),
}  # fmt: skip
_WRAPPED: dict[str, Callable[[Random, str], str]] = {
    "url-password": lambda random_, value: f"postgresql://{some(random_, LOWER, 5)}:{value}@db.internal:5432/app",
    "bearer": lambda _random, value: f'curl -H "Authorization: Bearer {value}" https://api.example.com/v1/me',
    "basic-auth": lambda random_, value: f"curl -s -u {some(random_, LOWER, 6)}:{value} https://example.com/build",
    "cookie": lambda _random, value: f"Cookie: sessionid={value}; theme=dark",
    "key-header": lambda _random, value: f"> X-Api-Key: {value}",
    "flag": lambda _random, value: f"deploy --region eu --token {value} --yes",
    "netrc": lambda random_, value: f"machine api.example.com login {some(random_, LOWER, 6)} password {value}",
    "redis-url": lambda _random, value: f"REDIS_URL=rediss://default:{value}@eu1.cache.example.com:6380",
}
WRAPPED_VALUES: dict[str, Maker] = {
    "url-password": _after("", ALNUM, 12, 24), "bearer": _after("", SAFE, 40), "basic-auth": _after("", ALNUM, 12, 20),
    "cookie": _after("", LOWER, 32), "key-header": _after("", ALNUM, 32), "flag": _after("", ALNUM, 40),
    "netrc": _after("", ALNUM, 16), "redis-url": _after("", ALNUM, 20, 40),
}  # fmt: skip

_FILLER = (
    "Running the tests once more", "the worker restarted after 3 s", "resolved 214 packages in 1.2 s",
    "def handler(event, context):", "see https://example.com/docs/setup#tokens", "max_tokens=4096, temperature=0.2",
    "commit 9f2c1e7b6a5d4c3b2a190817161514131211100f", "PASS tests/test_login.py::test_password_is_hashed",
)  # fmt: skip


def _named_texts(name: str, value: str, random_: Random) -> tuple[str, str]:
    """A named value as files, code and output write it."""
    forms = {
        "env": f"{name}={value}", "export": f"export {name}='{value}'", "yaml": f"  {name}: {value}",
        "python": f'{name} = "{value}"', "json": json.dumps({"region": "eu", name: value}),
        "ini": f"{name} = {value}", "javascript": f'const config = {{ {name}: "{value}", retries: 3 }};',
        "colour": f"\x1b[36m{name}\x1b[0m=\x1b[33m{value}\x1b[0m", "call": f'connect(host="db", {name}="{value}")',
        "quoted-yaml": f'{name}: "{value}"', "setting": f'os.environ["{name}"] = "{value}"',
    }  # fmt: skip
    return random_.choice(sorted(forms.items()))


def _bare_texts(value: str, random_: Random) -> tuple[str, str]:
    """A token where a program or a person put it."""
    forms = {
        "echo": f"$ echo $TOKEN\n{value}\n$ ", "colour": f"\x1b[32m{value}\x1b[0m", "assigned": f"KEY={value}",
        "quoted": f'client = Client("{value}")', "log": f"2026-03-01T10:11:12Z INFO using {value} for eu-west",
        "prose": f"Use `{value}` for the staging account.", "url": f"https://api.example.com/v1?x={value}&y=1",
        "list": f'["{value}", "second"]', "parentheses": f"login({value})", "line": value,
    }  # fmt: skip
    return random_.choice(sorted(forms.items()))


_OUTER: dict[str, Callable[[str], str]] = {
    "plain": lambda text: text,
    "diff": lambda text: "\n".join(["@@ -1,2 +1,3 @@", *(f"+{line}" for line in text.split("\n"))]),
    "json": lambda text: json.dumps({"type": "tool_result", "content": text}),
    "json-twice": lambda text: json.dumps({"line": json.dumps({"content": [{"text": text}]})}),
    "log": lambda text: f'level=info msg="{text}" took=3ms',
    "markdown": lambda text: f"```sh\n{text}\n```",
    "numbered": lambda text: "\n".join(f"{number:6}\t{line}" for number, line in enumerate(text.split("\n"), 1)),
}  # fmt: skip


def cases(seed: int, count: int = 540) -> list[Case]:
    """So many cases: formats most, then named ones, then encoded ones."""
    random_ = Random(seed)
    return [_case(random_, number) for number in range(count)]


def _case(random_: Random, number: int) -> Case:
    draw = number % 20
    if draw < 11:  # eleven of twenty
        kind, sort = random_.choice(sorted(FORMATS)), "format"
        secret = FORMATS[kind](random_)
        around, text = _bare_texts(secret, random_)
    elif draw < 16:  # five
        kind, sort = random_.choice(sorted(NAMED)), "named"
        names, make = NAMED[kind]
        secret = make(random_)
        around, text = _named_texts(random_.choice(names), secret, random_)
    elif draw < 18:  # two
        kind, sort = random_.choice(sorted(_WRAPPED)), "named"
        secret = WRAPPED_VALUES[kind](random_)
        around, text = kind, _WRAPPED[kind](random_, secret)
    else:
        kind, sort = (
            random_.choice(["github-classic", "anthropic", "aws-access-key", "pem", "gitlab", "slack-bot"]),
            "encoded",
        )
        inner = FORMATS[kind](random_)
        before = some(random_, ALNUM + " :", 0, 7)
        secret = base64.b64encode(f"{before}{inner}\n".encode()).decode()
        around, text = _bare_texts(secret, random_)
        secret = (
            secret[len(secret) // 3 : len(secret) // 2]
            if kind == "pem"
            else secret[(len(before) * 4 + 2) // 3 + 1 : -4]
        )
    outer = random_.choice(sorted(_OUTER))
    lines = [random_.choice(_FILLER) for _line in range(random_.randint(2, 8))]
    lines.insert(random_.randint(0, len(lines)), text)
    return Case(kind, sort, f"{around} in {outer}", _core(secret), _OUTER[outer]("\n".join(lines)))


def _core(secret: str) -> str:
    """What must not survive of a secret: of a key in lines, one line; of a URL, its last part."""
    if secret.startswith("-----"):
        return secret.split("\n")[1]
    return secret.rpartition("/")[2] if secret.startswith("https://") else secret.removeprefix("AccountKey=")


def leaks(case: Case, cleaned: str) -> bool:
    """Whether a run of 60 % of the secret (6 to 16 characters) survives."""
    size = min(16, max(6, len(case.secret) * 6 // 10))
    return any(case.secret[at : at + size] in cleaned for at in range(len(case.secret) - size + 1))


LOOK_ALIKES = r"""
commit 4f5e6d7c8b9a0f1e2d3c4b5a69788796a5b4c3d2
sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
"integrity": "sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg=="
token = tokenizer.encode(text)
password = getpass.getpass()
api_key = os.environ['API_KEY']
max_tokens=200000
api_key: str | None = None
secret_name: prod/db/credentials
AUTH_METHOD=password
def reset_password(user_id: int):
const token = await getToken(session.id)
password: ${DB_PASSWORD}
token: {{ secrets.GITHUB_TOKEN }}
key-value store
sk-learn
task-0123456789
https://example.com/a/b?page=2
Bearer authentication is required
Authorization: Bearer <token>
request_id=0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0
uuid: 123e4567-e89b-12d3-a456-426614174000
toolu_01A09q90qw90lq917835lq9
msg_013Zva2CMHLNnjNjJKqJ2EF
req_011CQ1a2b3c4d5e6f7g8h9j0
PASSWORD_MIN_LENGTH = 12
tokens: 12345, cost: 0.42
the password is stored as a hash
data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ
pip install --hash=sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824 x
ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ8 me@host
public_key = 'MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE'
next_page_token: CAUQAA
csrf_token_header = 'X-CSRF-Token'
cache_key = f'user:{user_id}:v2'
primary_key=True
author = 'someone'
tests/test_secrets.py::test_token_expires PASSED
self.secret = secret or self._default_secret()
process.env.SECRET_KEY
token_type: bearer
x-request-id: 7f3a9c21-aaaa
git clone https://github.com/owner/repository.git
user:password@host is the form of it
http://localhost:8080@test
id = 01ARZ3NDEKTSV4RRFFQ69G5FAV
etag: W/"33a64df551425fcc55e4d42a148795d9f25f89d4"
v1.2.3-rc.1+build.20260101
checksum = 'd41d8cd98f00b204e9800998ecf8427e'
secretsmanager.get_secret_value(SecretId='prod/app')
""".strip().split("\n")
"""Lines that look like secrets to a careless rule and are none."""
