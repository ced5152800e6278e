"""Values that only their surroundings give away: `password = ...`, a header, a flag, a URL with a password, a cookie.

A name announces the value, a test of the value decides. The test prefers to miss a weak password over marking code: a
value without a digit, a call, a path, a placeholder or a variable is none. What is missed is in docs/guide/secrets.md.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re


_COMPILED: dict[bytes, re.Pattern[bytes]] = {}


def compiled(pattern: bytes) -> re.Pattern[bytes]:
    """A pattern, compiled when it is first needed: all of them together take longer than a hook may."""
    found = _COMPILED.get(pattern)
    if found is None:
        import re

        found = _COMPILED[pattern] = re.compile(pattern)
    return found


_COLOUR = rb"(?:(?:\x1b|\\{1,7}(?:u001[bB]|x1[bB]|033|e))\[[0-9;]{0,16}m){0,3}"
_QUOTE = rb"\\{0,7}[\"'`]"
_STOP = rb"\s\"'`\\,;<>(){}\[\]|"
KEYWORDS = (
    "passw", "passphrase", "passcode", "passwd", "pwd", "secret", "token", "apikey", "api_key", "api-key", "api key",
    "access key", "auth key", "signing key", "encryption key", "private key", "license key", "master key",
    "pass:", "pass=", "pass =", 'pass"', "pass'", "pass\\",
    "accesskey", "access_key", "access-key", "authkey", "auth_key", "auth-key", "privatekey", "private_key",
    "private-key", "encryption_key", "encryption-key", "encryptionkey", "signing_key", "signing-key", "signingkey",
    "master_key", "master-key", "masterkey", "license_key", "license-key", "licensekey", "account_key", "accountkey",
    "app_key", "app-key", "appkey", "service_key", "servicekey", "service-key", "admin_key", "adminkey", "credential",
    "_auth", "_pass", "_pw", "pgpass", "mysql_pwd", "rootpw", "bindpw", "session_key", "sessionkey", "application_key",
    "webhook_key", "integration_key", "deploy_key", "jwt_key", "hmac_key", "crypt_key", "cookie_key", "x-key",
)  # fmt: skip
"""Parts of names whose values are secrets, in lower case."""

_KEYED = (
    rb"[A-Za-z0-9_.\-]{1,60}" + _COLOUR
    + rb"(?:\\{0,7}[\"'`\])]){0,3}" + _COLOUR
    + rb"(?:[ \t]{0,24}" + _COLOUR
    + rb"(?::[ ]?[A-Za-z][\w.]{0,20}(?:\[[^\]\s]{0,24}\])?(?: \| None)?[ ]?(?==[ ]?[\"']))?"  # a type
    + rb"(?P<sep>=>|:=|\?=|->|={1,3}|:{1,2}|[|>,]|(?<=[ \t\"'`])(?=[\"'`A-Za-z0-9+/$_.~!@#%^&*\-]))" + _COLOUR
    + rb"[ \t]{0,24}" + _COLOUR + rb")"
    + rb"(?:(?:\\r)?\\n[ ]{1,12}|\r?\n[ ]{1,12})?"
    + rb"(?:[rbfuRBFU]{1,2}(?=[\"']))?(?P<quote>" + _QUOTE + rb")?" + _COLOUR
    + rb"(?:(?P<scheme>(?i:bearer|basic|token|apikey|bot))[ ])?"
    + rb"(?P<secret>[^" + _STOP + rb"\x1b\x00-\x1f]{6,512})"
)  # fmt: skip
_PROSE = rb"[A-Za-z0-9_.\-]{1,60}+(?:[.,;!?)(]|[ ](?![ ]{0,23}(?:[=:|>?\-]|\\{0,7}[\"'`]|[^" + _STOP + rb"]{20})))"
"""What follows most names: more text. It is looked for first because it is the quickest to see."""
_TWO_WORDS = rb"(?i)(?:api|access|auth|signing|encryption|private|license|master|secret) (?=key)"
"""What is before the last word of names like `api key`."""
_NEGATIVE = (
    rb"(?i)public|primary|foreign|cache_?key|sort_?key|partition|keyboard|keyword|tokeni[sz]|tokens?[_-]?(?:type|count|"
    rb"limit|usage|length|budget|name|ids?\b|index|class|kind|pos|list|start|end|map|ttl|life|url|uri|endpoint|expir)|"
    rb"(?:max|min|num|total|input|output|prompt|completion|cached?|reasoning|eos|bos|pad|unk|sep|mask|special|stop|"
    rb"next(?:_?page)?|page|continuation|sync|cancel(?:lation)?|estimated|context|vocab|thinking|sub|cost|per|"
    rb"read|write|creation|spent|used)[_-]?(?:in|out)?[_-]?tokens?|author|secretar|"
    rb"(?:secret|key|token|password|passw|credential)s?[_-]?(?:name|arn|path|file|dir|ref|type|policy|length|field|"
    rb"version|hint|prompt|label|manager|store|provider|helper|env|var|regex|pattern|format|id\b|input|rule|scan|box)|"
    rb"fingerprint|checksum|digest|thumbprint|placeholder|example|idempotency|compass|bypass|passage|passed|passing|"
    rb"passive|passthrough|csrf_?header"
)
_PLACEHOLDER = (
    rb"(?i)(?:x{3,}|\*{2,}|\.{3}|-{4,}|_{4,}|#{3,}|<|\$|%[a-z({]|\{|@@|\[secret:|your|change.?me|placeholder|redacted|"
    rb"example|dummy|sample|insert|replace|process\.env|os\.(?:environ|getenv)|getenv|secrets?\.|vars\.|self\.|this\.|"
    rb"config\.|settings\.|env[.:\[(]|vault:|arn:|file:|https?://|\./|~/|none\b|null\b|true\b|false\b|"
    rb"undefined|todo|not[_-]?set|n/a\b|sha\d{1,3}[-:]|md5[-:]|function|lambda|async|await|return|import|class\b)"
)
_CALL = frozenset(b"([{")
_BETWEEN = (b"|", b">", b"->")
_WORDS = rb"(?:[a-z]{3,}|[A-Z][a-z]{2,}|[A-Z]{3,})"
_VERSION = rb"v?\d+(?:\.\d+)+(?:[-+.][\w.]+)?\Z|\d{4}-\d\d-\d\d[T ]?[\d:.Z+-]*\Z|[\d.,:_%-]+(?:ms|s|kb|mb|gb)?\Z"
_PATH = rb"/?[\w.-]+(?:/[\w.-]+){1,}\Z|[\w-]+\.(?:py|js|ts|tsx|json|md|txt|toml|ya?ml|html|go|rs|c|h|java)\Z"
_UUID = rb"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\Z"
_DOTTED = rb"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+\Z"
_PASS = rb"(?i)pass(?!age|ed|ing|ive)|pwd|_pw\b|rootpw|bindpw|secret"
_BEFORE = rb"[A-Za-z0-9_.\-]{0,48}\Z"
STRONG_BITS = 3.3
"""How many bits of entropy each character of a value must have with only a space between it and its name."""
LEAST_BITS = 2.5
_ALPHABET, _LONG, _MIDDLE, _SHORT = 32, 20, 12, 8
_MANY_DIGITS, _CLASSES = 3, 3


def keyed_value(data: bytes, start: int) -> tuple[int, int] | None:
    """The span of the secret that the name at `start` announces, if there is one."""
    if b" " in data[start + 3 : start + 11] and (two := compiled(_TWO_WORDS).match(data, start)) is not None:
        start = two.end()
    if compiled(_PROSE).match(data, start) is not None and b"-" not in data[max(0, start - 24) : start]:
        return None
    found = compiled(_KEYED).match(data, start)
    if found is None:
        return None
    begin, end = found.span("secret")
    before = compiled(_BEFORE).search(data, max(0, start - 48), start)
    name = (before.group() if before else b"") + data[start : found.start("sep")].strip(b" \t\"'`\\")
    if compiled(_NEGATIVE).search(name):
        return None
    quoted, bare = found["quote"] is not None, not found["sep"].strip()
    if found["sep"] == b"," and not quoted:
        return None
    while end > begin and data[end - 1] in b".:!?*":
        end -= 1
    after = data[end : end + 1]
    if not quoted and after and after[0] in _CALL:
        return None
    strict = (bare and not quoted and not name.startswith(b"-")) or (
        found["sep"] in _BETWEEN and not _is_framed(data, found, end)
    )
    if not is_secret(data[begin:end], strict=strict, word=bool(compiled(_PASS).search(name))):
        return None
    return begin, end


def _is_framed(data: bytes, found: re.Match[bytes], end: int) -> bool:
    """Whether an element of XML or a row of a table ends after the value too."""
    if found["sep"] == b">":
        return data[end : end + 2] == b"</"
    return found["sep"] == b"|" and data[end : end + 3].lstrip(b" ").startswith(b"|")


def _bits(value: bytes) -> float:
    size = len(value)
    from math import log2

    return -sum(n / size * log2(n / size) for n in map(value.count, set(value)))


def is_secret(value: bytes, *, strict: bool = False, word: bool = False) -> bool:
    """Whether a value looks random and not like code; `word`: of a name that means a password."""
    size = len(value)
    if (
        size < _SHORT
        or compiled(_PLACEHOLDER).match(value)
        or compiled(_VERSION).match(value)
        or value.startswith(b"[secret:")
    ):
        return False
    if compiled(_UUID).match(value):
        return True
    if compiled(_PATH).match(value) or compiled(_DOTTED).match(value):
        return size >= _LONG and _random(value)
    digits = _digits(value)
    if strict:
        return size >= _LONG and digits > 1 and _random(value) and _bits(value) >= STRONG_BITS
    kinds = _classes(value)
    if size >= _LONG:
        return (digits > 0 or kinds >= _CLASSES) and _random(value)
    if size >= _MIDDLE:
        return digits > 0 and kinds > 1 and (_random(value) or (word and kinds >= _CLASSES))
    return word and digits > 0 and kinds >= _CLASSES


_CLASS_OF = bytes(
    1 if chr(one).islower() else 2 if chr(one).isupper() else 3 if chr(one).isdigit() else 4 for one in range(128)
) + bytes(128)  # fmt: skip


def _classes(value: bytes) -> int:
    """How many of lower case, upper case, digits and others it has."""
    return len(set(value.translate(_CLASS_OF)))


def _random(value: bytes) -> bool:
    """Whether most of it is not made of words, and its characters differ."""
    if len(value) >= _ALPHABET and value.isalnum() and _classes(value) == _CLASSES and _digits(value) >= _MANY_DIGITS:
        return _bits(value) >= STRONG_BITS
    words = sum(len(one) for one in compiled(_WORDS).findall(value) if _is_word(one))
    return words * 2 <= len(value) and _bits(value) >= LEAST_BITS


def _digits(value: bytes) -> int:
    return len(value) - len(value.translate(None, b"0123456789"))


_VOWELS = frozenset(b"aeiouyAEIOUY")


def _is_word(letters: bytes) -> bool:
    """Whether letters read like a word: vowels and consonants in the proportion of languages, no long run of either."""
    if len(letters) < 4:  # noqa: PLR2004  # too short to say
        return False
    vowels = sum(one in _VOWELS for one in letters)
    run = longest = 0
    for one in letters:
        run = 0 if one in _VOWELS else run + 1
        longest = max(longest, run)
    return 0.2 <= vowels / len(letters) <= 0.7 and longest <= 4  # noqa: PLR2004  # measured on English


Surrounded = tuple[str, str, bytes]
"""Kind, literals, and the pattern from the literal on; its group `secret` is replaced."""

SURROUNDED: tuple[Surrounded, ...] = (
    ("url-password", "://", (
        rb"://(?P<user>[^\s:@/\"'\\<>?#]{0,80}):(?P<secret>[^\s@/\"'\\<>]{3,200})@[\w.\[-]")),
    ("url-token", "://", (rb"://(?P<secret>[A-Za-z0-9_\-]{20,200})@[\w.\[-]")),
    ("authorization", "authorization", (
        rb"(?i)authorization" + _COLOUR + rb"(?:\\{0,7}[\"'`\]]){0,2}" + _COLOUR + rb"[ ]?(?:[:=,]|=>)[ ]?" + _COLOUR
        + rb"[fb]?(?:" + _QUOTE + rb")?" + _COLOUR
        + rb"(?:bearer|basic|token|apikey|api-key|bot|digest|key|ssws|negotiate)" + _COLOUR + rb"[ ]{1,3}" + _COLOUR
        + rb"(?P<secret>[A-Za-z0-9+/=_.~\-]{12,4000})")),
    ("bearer-token", "bearer", (rb"(?i)bearer[ ]" + _COLOUR + rb"(?P<secret>[A-Za-z0-9+/=_.~\-]{20,4000})")),
    ("api-key-header", ("x-api-key x-auth-token x-access-token x-vault-token x-goog-api-key private-token job-token "
     "x-figma-token x-shopify-access-token x-amz-security-token ocp-apim-subscription-key dd-api-key api-key: apikey:"),
     (rb"(?i)[a-z\-]{6,28}" + _COLOUR + rb"(?:\\{0,7}[\"'`]){0,2}[ ]?[:=,][ ]?" + _COLOUR + rb"(?:" + _QUOTE
                + rb")?" + _COLOUR + rb"(?P<secret>[A-Za-z0-9+/=_.~\-]{16,4000})")),
    ("cookie", "cookie", (
        rb"(?i)cookie" + _COLOUR + rb"(?:\\{0,7}[\"'`]){0,2}" + _COLOUR + rb"[ ]?[:=][ ]?" + _COLOUR + rb"(?:" + _QUOTE
        + rb")?[ ]?(?P<secret>[\w.\-]{2,64}=[^\s\"'\\;]{12,4000}(?:;[ ]?[\w.\-]{2,64}=[^\s\"'\\;]{8,4000}){0,20})")),
    ("session-cookie", "session= sessionid= sid= phpsessid= jsessionid= connect.sid=", (
        rb"(?i)[\w.]{3,12}=(?P<secret>[A-Za-z0-9%._\-]{20,400})(?=[;\s\"'\\]|\Z)")),
    ("basic-credentials", "curl --user -u", (
        rb"(?:curl[ ](?:[^\n\\|;]{0,200}?[ ])?-u|--user|-u)(?:[ ]|=|(?<=-u))" + rb"(?:" + _QUOTE
        + rb")?[\w.@+%\-]{1,64}:(?P<secret>[^\s\"'\\:@/]{6,200})")),
    ("mysql-password", "mysql mysqldump mariadb", (
        rb"(?:mysql|mysqldump|mysqladmin|mariadb)[ ](?:[^\n\\|;]{0,120}[ ])?"
        rb"-p(?P<secret>[^\s\"'\\|;&-][^\s\"'\\|;&]{5,100})")),
    ("command-password", "docker redis-cli", (
        rb"(?:docker login[ ](?:[^\n\\|;]{0,120}[ ])?-p|redis-cli[ ](?:[^\n\\|;]{0,120}[ ])?-a)[ ]?(?:" + _QUOTE
        + rb")?(?P<secret>[^\s\"'\\|;&-][^\s\"'\\|;&]{5,200})")),
    ("sshpass", "sshpass", (rb"sshpass[ ]-p[ ]?(?:" + _QUOTE + rb")?(?P<secret>[^\s\"'\\]{4,100})")),
    ("netrc", "machine", (
        rb"machine\s{1,8}[\w.\-]{3,100}(?:\s|\\n){1,8}login(?:\s|\\n){1,8}[^\s\\]{1,100}(?:\s|\\n){1,8}password"
        rb"(?:\s|\\n){1,8}(?P<secret>[^\s\"'\\]{6,200})")),
    ("sql-password", "identified by", (rb"(?i)identified by[ ]\\{0,7}[\"'](?P<secret>[^\s\"'\\]{6,100})")),
    ("docker-auth", '"auth', (
        rb"\"auth\\{0,7}\"[ ]?:[ ]?\\{0,7}\"(?P<secret>[A-Za-z0-9+/]{16,2000}={0,2})")),
    ("kubernetes-key", "client-key-data", (
        rb"client-key-data\\{0,7}\"?:[ ]?\\{0,7}\"?(?P<secret>[A-Za-z0-9+/=]{40,8000})")),
    ("npm-password", "_authtoken", (rb"_authToken[ ]?=[ ]?\\{0,7}\"?(?P<secret>[\w.+/=\-]{16,400})")),
    ("discord-token", "discord", (
        rb"(?i)discord[^\n]{0,60}?(?P<secret>[MNO][\w-]{22,27}\.[\w-]{6}\.[\w-]{27,45})")),
    ("hex-key", "private", (
        rb"(?i)private[ _-]?key[^\n]{0,24}?(?P<secret>0x[0-9a-f]{64}(?![0-9a-f]))")),
)  # fmt: skip
NEEDS_TEST = frozenset({"session-cookie", "api-key-header", "url-token", "mysql-password", "docker-auth", "cookie",
                        "command-password", "basic-credentials", "authorization", "bearer-token"})  # fmt: skip
"""Kinds whose value must also look like a secret."""
_TOLERANT = frozenset({"basic-credentials", "cookie", "mysql-password", "command-password"})


def accepts(kind: str, value: bytes) -> bool:
    """Whether a value in these surroundings is a secret, and not a variable or an example."""
    if compiled(_PLACEHOLDER).match(value) or not value.strip(b"*x.X-_"):
        return False
    if kind == "url-password":
        return value not in (b"password", b"pass", b"port", b"PASSWORD", b"pwd", b"PORT") and not value.isdigit()
    if kind not in NEEDS_TEST:
        return True
    if kind in _TOLERANT:
        return _digits(value) > 0 or (_random(value) and _classes(value) > 1)
    return is_secret(value, word=True)
