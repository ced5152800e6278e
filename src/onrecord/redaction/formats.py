r"""The formats of secrets: for each one a literal that announces it and the bounded pattern that starts there.

A literal is searched without regard to case and costs the same whether there are ten or a thousand of them; a pattern
runs only where its literal is, forward from there, and never further than its bounds. So no text is slow, and a word
boundary in front is not needed: a token directly after `\n` in escaped text or after the `m` of a colour is found.
Formats with a short literal need an edge in front, because a letter or digit there means another word.
"""

from __future__ import annotations

FREE, EDGE, ALONE = 0, 1, 2
"""What may be in front of the literal: anything; no letter, digit or underscore; also no hyphen and no dot."""
Format = tuple[str, str, str, int]
"""Kind, literals (separated by spaces), the pattern from the literal on, and what may be in front."""

_HEX, _ALNUM, _SAFE = "[0-9a-f]", "[A-Za-z0-9]", r"[\w-]"
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"

_MODELS: tuple[Format, ...] = (
    ("anthropic-key", "sk-ant-", rf"sk-ant-[a-z]{{2,8}}\d{{0,3}}-{_SAFE}{{16,200}}", FREE),
    ("openai-key", "sk-proj- sk-svcacct- sk-admin-", rf"sk-(?:proj|svcacct|admin)-{_SAFE}{{20,200}}", FREE),
    ("openrouter-key", "sk-or-v1-", rf"sk-or-v1-{_HEX}{{32,64}}", FREE),
    ("langfuse-key", "sk-lf-", rf"sk-lf-{_UUID}", FREE),
    ("llm-key", "sk-", rf"sk-(?=[A-Za-z0-9_-]{{0,40}}\d){_ALNUM}{{30,64}}", EDGE),
    ("huggingface-token", "hf_ api_org_", rf"(?:hf_|api_org_){_ALNUM}{{30,40}}", EDGE),
    ("replicate-token", "r8_", rf"r8_{_ALNUM}{{37,40}}", EDGE),
    ("groq-key", "gsk_", rf"gsk_{_ALNUM}{{48,56}}", EDGE),
    ("perplexity-key", "pplx-", rf"pplx-{_ALNUM}{{40,56}}", EDGE),
    ("xai-key", "xai-", rf"xai-{_ALNUM}{{70,90}}", EDGE),
    ("fireworks-key", "fw_", rf"fw_(?={_ALNUM}{{0,20}}\d){_ALNUM}{{22,24}}(?!\w)", EDGE),
    ("tavily-key", "tvly-", rf"tvly-{_SAFE}{{28,64}}", EDGE),
    ("langsmith-key", "lsv2_", rf"lsv2_(?:pt|sk)_{_HEX}{{32}}_{_HEX}{{10}}", FREE),
    ("pinecone-key", "pcsk_", r"pcsk_\w{40,90}", FREE),
    ("together-key", "tgp_v1_", rf"tgp_v1_{_SAFE}{{40,48}}", FREE),
    ("nvidia-key", "nvapi-", rf"nvapi-{_SAFE}{{56,72}}", FREE),
    ("cerebras-key", "csk-", r"csk-[a-z0-9]{40,60}", EDGE),
    ("e2b-key", "e2b_", rf"e2b_{_HEX}{{40}}", EDGE),
    ("firecrawl-key", "fc-", rf"fc-{_HEX}{{32}}", EDGE),
    ("jina-key", "jina_", r"jina_\w{50,80}", EDGE),
    ("runpod-key", "rpa_", r"rpa_[A-Z0-9]{40,60}", EDGE),
    ("wandb-key", "wandb_v1_", r"wandb_v1_\w{40,100}", FREE),
    ("elevenlabs-key", "sk_", rf"sk_{_HEX}{{48}}", EDGE),
    ("bedrock-key", "absk", r"ABSK[A-Za-z0-9+/]{100,270}={0,2}", EDGE),
    ("modal-key", "ak- as-", rf"a[ks]-(?={_ALNUM}{{0,18}}\d){_ALNUM}{{22}}(?!\w)", EDGE),
    ("brave-key", "bsa", rf"BSA(?={_SAFE}{{0,24}}\d){_SAFE}{{28}}(?!\w)", EDGE),
)
_CLOUDS: tuple[Format, ...] = (
    ("aws-access-key", "akia asia abia acca", r"A(?:KIA|SIA|BIA|CCA)[A-Z2-7]{16}(?![A-Za-z0-9])", FREE),
    ("aws-session-token", "fwogzxivyxdz iqojb3jpz2lux2vj",
     r"(?:FwoGZXIvYXdz|IQoJb3JpZ2luX2Vj)[A-Za-z0-9+/=%]{60,2000}", FREE),
    ("google-api-key", "aiza", rf"AIza{_SAFE}{{35}}", FREE),
    ("google-oauth-token", "ya29.", r"ya29\.[\w.-]{20,1000}", FREE),
    ("google-client-secret", "gocspx-", rf"GOCSPX-{_SAFE}{{24,32}}", FREE),
    ("google-refresh-token", "1//0", rf"1//0{_SAFE}{{40,150}}", EDGE),
    ("azure-storage-key", "accountkey=", r"AccountKey=(?P<secret>[A-Za-z0-9+/]{80,90}={0,2})", FREE),
    ("azure-access-key", "sharedaccesskey=", r"SharedAccessKey=(?P<secret>[A-Za-z0-9+/]{40,90}={0,2})", FREE),
    ("azure-sas", "sig=", r"sig=(?P<secret>[A-Za-z0-9%+/]{40,90}(?:%3D|=)?)", FREE),
    ("azure-client-secret", "q~", r"Q~[\w~.-]{31,34}", FREE),
    ("azure-devops-token", "azdo", r"AZDO[A-Za-z0-9]{4}", FREE),
    ("alibaba-key", "ltai", rf"LTAI(?={_ALNUM}{{0,20}}\d){_ALNUM}{{12,24}}(?!\w)", EDGE),
    ("tencent-key", "akid", rf"AKID{_ALNUM}{{32,36}}(?!\w)", EDGE),
    ("yandex-key", "aqvn", rf"AQVN{_SAFE}{{35,38}}", EDGE),
    ("digitalocean-token", "doo_v1_ dop_v1_ dor_v1_", rf"do[opr]_v1_{_HEX}{{64}}", FREE),
    ("heroku-key", "hrku-", rf"HRKU-{_SAFE}{{36,64}}", FREE),
    ("fly-token", "flyv1 fo1_", rf"(?:FlyV1[ +]fm\d[\w+/=,-]{{60,2000}}|fo1_{_SAFE}{{40,48}})", EDGE),
    ("vercel-token", "vcp_ vck_ vca_ vci_ vcr_", rf"vc[pkair]_{_ALNUM}{{24,60}}", EDGE),
    ("netlify-token", "nfp_", rf"nfp_{_ALNUM}{{36,44}}", EDGE),
    ("supabase-key", "sbp_ sb_secret_", rf"(?:sbp_{_HEX}{{40}}|sb_secret_{_SAFE}{{24,48}})", EDGE),
    ("planetscale-token", "pscale_", r"pscale_(?:tkn|pw|oauth)_[\w.=-]{32,64}", FREE),
    ("neon-key", "napi_", r"napi_[a-z0-9]{40,70}", EDGE),
    ("databricks-token", "dapi", rf"dapi{_HEX}{{32}}(?:-\d)?", EDGE),
    ("doppler-token", "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.",
     rf"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:\w{{1,30}}\.)?{_ALNUM}{{40,44}}", FREE),
    ("vault-token", "hvs. hvb. hvr.", rf"hv[sbr]\.{_SAFE}{{24,300}}", EDGE),
    ("terraform-token", ".atlasv1.", r"\.atlasv1\.[\w=-]{60,80}", FREE),
    ("pulumi-token", "pul-", rf"pul-{_HEX}{{40}}", EDGE),
    ("onepassword-token", "ops_eyj", r"ops_eyJ[\w+/=-]{100,2000}", FREE),
    ("onepassword-secret-key", "a3-", (
        r"A3-[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})-(?:[A-Z0-9]{5}-){2}[A-Z0-9]{5}"
     ), EDGE),
    ("age-key", "age-secret-key-1", r"AGE-SECRET-KEY-1[0-9A-Z]{58}", FREE),
    ("cloudflare-key", "v1.0-", rf"v1\.0-{_HEX}{{24}}-{_HEX}{{146}}", EDGE),
    ("tailscale-key", "tskey-", rf"tskey-(?:auth|api|client|scim|webhook)-{_ALNUM}{{6,20}}-{_ALNUM}{{20,50}}", FREE),
    ("openshift-token", "sha256~", rf"sha256~{_SAFE}{{43}}", FREE),
    ("oracle-key", "ocid1.", r"ocid1\.(?:credential|apikey)\.[\w.-]{40,120}", FREE),
    ("scalingo-token", "tk-us-", rf"tk-us-{_SAFE}{{48}}", FREE),
)  # fmt: skip
_CODE: tuple[Format, ...] = (
    ("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", rf"gh[pousr]_{_ALNUM}{{36,255}}", FREE),
    ("github-token", "github_pat_", r"github_pat_\w{60,255}", FREE),
    ("gitlab-token", "glpat- gldt- glrt- glptt- glft- glsoat- glcbt- glimt- glagent- gloas- glffct-",
     rf"gl(?:pat|dt|rt|ptt|ft|soat|cbt|imt|agent|oas|ffct)-{_SAFE}{{20,64}}(?:\.[\w.]{{5,20}})?", FREE),
    ("gitlab-token", "gr1348941", rf"GR1348941{_SAFE}{{20,22}}", FREE),
    ("bitbucket-token", "atbb", rf"ATBB{_ALNUM}{{32}}", EDGE),
    ("atlassian-token", "atatt3 atctt3", r"AT[AC]TT3[\w=-]{150,250}", FREE),
    ("npm-token", "npm_", rf"npm_{_ALNUM}{{36}}", EDGE),
    ("pypi-token", "pypi-ageichlwas", rf"pypi-AgEIcHlwaS{_SAFE}{{40,1000}}", FREE),
    ("rubygems-key", "rubygems_", rf"rubygems_{_HEX}{{48}}", FREE),
    ("crates-token", "cio", rf"cio(?={_ALNUM}{{0,30}}\d){_ALNUM}{{32}}(?!\w)", EDGE),
    ("nuget-key", "oy2", r"oy2[a-z0-9]{43}(?!\w)", EDGE),
    ("docker-token", "dckr_pat_ dckr_oat_", rf"dckr_[po]at_{_SAFE}{{24,40}}", FREE),
    ("clojars-token", "clojars_", r"CLOJARS_[a-z0-9]{60}", FREE),
    ("artifactory-key", "akcp", rf"AKCp{_ALNUM}{{60,75}}", EDGE),
    ("artifactory-token", "cmvmdgtu", rf"cmVmdGtu{_ALNUM}{{56}}", EDGE),
    ("sonar-token", "sqp_ squ_ sqa_", rf"sq[pua]_{_HEX}{{40}}", EDGE),
    ("circleci-token", "ccipat_", rf"CCIPAT_{_ALNUM}{{18,26}}_{_HEX}{{40}}", FREE),
    ("buildkite-token", "bkua_", rf"bkua_{_HEX}{{40}}", EDGE),
    ("postman-key", "pmak-", rf"PMAK-{_HEX}{{24}}-{_HEX}{{34}}", FREE),
    ("harness-token", "pat. sat.", rf"[ps]at\.{_SAFE}{{22}}\.{_HEX}{{24}}\.{_ALNUM}{{20}}", EDGE),
    ("octopus-key", "api-", r"API-[A-Z0-9]{24,36}(?!\w)", EDGE),
    ("prefect-key", "pnu_", r"pnu_[a-z0-9]{36}", EDGE),
    ("infracost-key", "ico-", rf"ico-{_ALNUM}{{32}}", EDGE),
    ("readme-key", "rdme_", r"rdme_[a-z0-9]{70}", EDGE),
    ("launchdarkly-key", "sdk- api- mob-", rf"(?:sdk|api|mob)-{_UUID}", EDGE),
)  # fmt: skip
_SERVICES: tuple[Format, ...] = (
    ("slack-token", "xoxa- xoxb- xoxe- xoxp- xoxr- xoxs- xoxo- xoxc- xoxd-", r"xox[abeprsocd]-[\w%-]{10,250}", FREE),
    ("slack-token", "xoxe.xox", r"xoxe\.xox[bp]-\d-[A-Za-z0-9]{100,250}", FREE),
    ("slack-app-token", "xapp-", r"xapp-\d-[A-Za-z0-9]{6,20}-\d{6,20}-[A-Za-z0-9]{30,90}", FREE),
    ("slack-webhook", "hooks.slack.com/", (
        r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<secret>[A-Za-z0-9+/]{30,80})"
     ), FREE),
    ("discord-webhook", "/api/webhooks/", r"/api/webhooks/(?P<secret>\d{15,22}/[\w-]{50,90})", FREE),
    ("teams-webhook", "webhook.office.com/", r"webhook\.office\.com/(?P<secret>webhookb2/[\w@/-]{80,250})", FREE),
    ("stripe-key", "sk_live_ sk_test_ rk_live_ rk_test_ sk_prod_ rk_prod_",
     rf"[sr]k_(?:live|test|prod)_{_ALNUM}{{10,120}}", FREE),
    ("webhook-secret", "whsec_", r"whsec_[A-Za-z0-9+/]{24,80}={0,2}", FREE),
    ("twilio-key", "sk", rf"SK{_HEX}{{32}}(?!\w)", EDGE),
    ("sendgrid-key", "sg.", rf"SG\.{_SAFE}{{16,32}}\.{_SAFE}{{16,64}}", EDGE),
    ("mailgun-key", "key-", rf"key-{_HEX}{{32}}(?!\w)", EDGE),
    ("mailchimp-key", "-us", r"-us\d{1,2}(?!\w)", FREE),
    ("brevo-key", "xkeysib- xsmtpsib-", rf"x(?:key|smtp)sib-{_HEX}{{64}}-{_ALNUM}{{16}}", FREE),
    ("resend-key", "re_", rf"re_{_ALNUM}{{8}}_{_ALNUM}{{24}}(?!\w)", EDGE),
    ("shopify-token", "shpat_ shpca_ shppa_ shpss_", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}", FREE),
    ("square-token", "sq0atp- sq0csp- sq0idp-", rf"sq0(?:atp|csp|idp)-{_SAFE}{{22,43}}", FREE),
    ("square-token", "eaaa", rf"EAAA{_SAFE}{{60}}(?!\w)", EDGE),
    ("facebook-token", "eaa", rf"EAA(?={_ALNUM}{{0,60}}\d){_ALNUM}{{80,250}}", EDGE),
    ("telegram-token", ":aa", rf":AA{_SAFE}{{32,34}}(?!\w)", FREE),
    ("linear-key", "lin_api_ lin_oauth_", rf"lin_(?:api|oauth)_{_ALNUM}{{40,64}}", FREE),
    ("notion-token", "ntn_ secret_", rf"(?:ntn_{_ALNUM}{{40,50}}|secret_{_ALNUM}{{43}}(?!\w))", EDGE),
    ("airtable-token", "pat", rf"pat{_ALNUM}{{14}}\.{_HEX}{{64}}", EDGE),
    ("figma-token", "figd_ figo_ figu_", rf"fig[dou]_{_SAFE}{{36,50}}", FREE),
    ("newrelic-key", "nrak- nrii- nrjs- nrra- nrsp-", rf"NR(?:AK|II|JS|RA|SP)-{_SAFE}{{19,34}}", EDGE),
    ("grafana-token", "glc_ glsa_", rf"(?:glc_[A-Za-z0-9+/]{{32,400}}={{0,2}}|glsa_{_ALNUM}{{32}}_{_HEX}{{8}})", EDGE),
    ("sentry-token", "sntrys_ sntryu_", r"sntry[su]_[\w+/=-]{60,300}", FREE),
    ("dynatrace-token", "dt0c01. dt0s16. dt0s01.", r"dt0[cs]\d\d\.[A-Z0-9]{24}\.[A-Z0-9]{64}", FREE),
    ("hubspot-token", "pat-na pat-eu", rf"pat-(?:na|eu)\d-{_UUID}", EDGE),
    ("posthog-key", "phx_", rf"phx_{_ALNUM}{{40,50}}", EDGE),
    ("mapbox-token", "sk.eyj", rf"sk\.eyJ{_SAFE}{{30,400}}\.{_SAFE}{{20,30}}", EDGE),
    ("dropbox-token", "sl.", rf"sl\.(?:u\.)?{_SAFE}{{120,1400}}", EDGE),
    ("contentful-token", "cfpat-", rf"CFPAT-{_SAFE}{{43}}", FREE),
    ("plaid-token", "access-sandbox- access-production- access-development-",
     rf"access-(?:sandbox|production|development)-{_UUID}", FREE),
    ("razorpay-key", "rzp_live_ rzp_test_", rf"rzp_(?:live|test)_{_ALNUM}{{14}}", FREE),
    ("flutterwave-key", "flwseck flwpubk", rf"FLW(?:SEC|PUB)K(?:_TEST)?-{_HEX}{{12,32}}-X", FREE),
    ("duffel-token", "duffel_test_ duffel_live_", rf"duffel_(?:test|live)_{_SAFE}{{43}}", FREE),
    ("easypost-key", "ezak ezat eztk", rf"EZ[AT][KT]{_ALNUM}{{54}}", EDGE),
    ("frameio-token", "fio-u-", r"fio-u-[\w=-]{64}", FREE),
    ("shippo-token", "shippo_live_ shippo_test_", rf"shippo_(?:live|test)_{_HEX}{{40}}", FREE),
    ("typeform-token", "tfp_", r"tfp_[\w.=-]{40,64}", EDGE),
    ("lob-key", "live_ test_", rf"(?:live|test)_(?:pub_)?{_HEX}{{31,35}}(?!\w)", EDGE),
    ("intra42-secret", "s-s4t2ud- s-s4t2af-", rf"s-s4t2(?:ud|af)-{_HEX}{{64}}", FREE),
    ("maxmind-key", "_mmk", r"_mmk(?!\w)", FREE),
    ("adobe-secret", "p8e-", r"p8e-[A-Za-z0-9]{32}", EDGE),
    ("settlemint-token", "sm_aat_ sm_pat_ sm_sat_", rf"sm_[aps]at_{_ALNUM}{{16}}", EDGE),
    ("trigger-key", "tr_dev_ tr_prod_ tr_stg_", rf"tr_(?:dev|prod|stg)_{_ALNUM}{{16,40}}", EDGE),
)  # fmt: skip
_STRUCTURES: tuple[Format, ...] = (
    ("jwt", "eyj", rf"eyJ{_SAFE}{{8,4000}}+\.eyJ{_SAFE}{{4,8000}}+\.{_SAFE}{{10,2000}}", ALONE),
    ("private-key", "-----begin", (r"-----BEGIN[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?P<secret>"
     r"(?:(?!-----)[\s\S]){20,20000}+(?=-----END)|(?:(?:\s|\\+[nrt]|[\"'+>|,-]){0,16}[A-Za-z0-9+/=]{24,80}){1,400}"
     r"(?:(?:\s|\\+[nrt]){1,8}[A-Za-z0-9+/]{1,80}={1,2})?)"), FREE),
    ("putty-key", "private-lines:", r"Private-Lines: ?\d{1,3}(?P<secret>(?:\\r|\\n|\s)[A-Za-z0-9+/=\s\\]{40,8000})",
     FREE),
    ("wireguard-key", "privatekey", r"PrivateKey ?= ?(?P<secret>[A-Za-z0-9+/]{43}=)", FREE),
    ("password-hash", "$2a$ $2b$ $2y$ $6$ $5$ $apr1$ $argon2",
     (r"\$(?:2[aby]\$\d\d\$[./A-Za-z0-9]{53}|[56]\$(?:rounds=\d{1,9}\$)?[./A-Za-z0-9]{1,16}\$[./A-Za-z0-9]{43,86}"
     r"|apr1\$[./A-Za-z0-9]{1,8}\$[./A-Za-z0-9]{22}|argon2id?\$v=\d\d\$m=\d{1,9},t=\d{1,4},p=\d{1,3}\$[\w+/]{8,90}"
     r"\$[\w+/]{20,120})"), FREE),
)  # fmt: skip

FORMATS = (*_MODELS, *_CLOUDS, *_CODE, *_SERVICES, *_STRUCTURES)
BEFORE = {
    "azure-client-secret": r"[\w~.]{3}\d\Z",
    "azure-devops-token": r"[A-Za-z0-9]{76}\Z",
    "terraform-token": r"[A-Za-z0-9]{14}\Z",
    "mailchimp-key": r"[0-9a-f]{32}\Z",
    "telegram-token": r"(?:(?<=\D)|(?<=\\n)|(?<!.))\d{8,10}\Z",
    "maxmind-key": r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}\Z",
}
"""What must be directly in front of the literal of these formats; it belongs to the secret."""
REACH_BACK = 80
"""How many bytes before a literal such a pattern may look."""
ENCODED = (
    "ghp_", "gho_", "github_pat_", "glpat-", "sk-ant-", "sk-proj-", "AKIA", "AIza", "xoxb-", "xoxp-", "npm_",
    "sk_live_", "sk_test_", "SG.", "hf_", "hvs.", "dckr_pat_", "pypi-AgEI", "-----BEGIN", "password=", 'password":',
    "PASSWORD=", "api_key", "API_KEY", "secret_key", "SECRET_KEY", "token=", "TOKEN=", "://",
)  # fmt: skip
"""Beginnings that are also searched in base64, at each of its three alignments."""
