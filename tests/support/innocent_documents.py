"""Two hundred texts of a working day that hold no secret: logs, lock files, ids, hashes, styles, letters, code."""

from __future__ import annotations

from base64 import b64encode
from hashlib import md5, sha1, sha256, sha512
from random import Random
from string import ascii_letters, digits
from uuid import UUID

_BASE62 = ascii_letters + digits

WRITTEN = r"""
commit 9fceb02d0ae598e95dc970b74767f19372d61af8
Merge: 4b825dc 8d69ac1
---
diff --git a/src/token.py b/src/token.py
index 83db48f..bf269f4 100644
--- a/src/token.py
+++ b/src/token.py
@@ -1,4 +1,4 @@ def next_token(stream):
-    token_count = 0
+    token_count = stream.count
---
On branch feature/PROJ-1234-rotate-api-keys-without-downtime
Your branch is ahead of 'origin/feature/PROJ-1234-rotate-api-keys-without-downtime' by 2 commits.
---
a1b2c3d Rotate the signing keys every 90 days (#4521)
f0e1d2c Fix token refresh when the clock is wrong
---
"lodash": {
  "version": "4.17.21",
  "resolved": "https://registry.npmjs.org/lodash/-/lodash-4.17.21.tgz",
  "integrity": "sha512-v2kDEe57lecTulaDIuNTPy3Ry4gLGJ6Z1O3vE1krgXZNrQ+LFTGHVxVjcXPs17LhbZVGedAJv8XZ1tvj5FvSg=="
}
---
[[package]]
name = "serde"
version = "1.0.197"
checksum = "3fb1c873e1b9b056a4dc4c0c198b24c3ffa059243875552b2bd0933b1aee4ce2"
---
golang.org/x/crypto v0.21.0 h1:X31++rzVUdKsX5sWSZWPzWsrqKmyYAQTnVjPtDgaZCk=
golang.org/x/crypto v0.21.0/go.mod h1:0BP7YvVV9gBbVKyeTG0Gyn+gZm94bibOW5BjDEYAOMs=
---
requests==2.31.0 \
    --hash=sha256:58cd2187c01e70e6e26505bca751777aa9f2ee0b7f4300988b709f44e013003f \
    --hash=sha256:942c5a758f98d790eaed1a29cb6eefc7ffb0d1cf7af05c3d2791656dbd6ad1e1
---
<script src="https://cdn.example.com/app.js" crossorigin="anonymous"
  integrity="sha384-oqVuAfXRKap7fdgcCY5uykM6+R9GqQ8K/uxy9rx7HNQlGYl1kPzQho1wx4JwY8wC"></script>
---
docker pull nginx@sha256:0d17b565c37bcbd895e9d92315a05c1c3c9a29f762b011a10c54a66cd53c9b31
---
Status: Downloaded newer image for postgres:16-alpine
Digest: sha256:951bfda460300925caa3949eaa092ba022e9aec191bbea9056a39e2382260b27
---
arn:aws:iam::123456789012:role/service-role/deploy-production-lambda
---
i-0abcd1234efgh5678 running t3.medium subnet-0bb1c79de3EXAMPLE vpc-0a1b2c3d4e5f67890 sg-903004f8
---
ami-0c55b159cbfafe1f0 snap-066877671789bd71b vol-049df61146c4d7901 eni-0d83f9eb1c1e0a6f2
---
s3://acme-data-lake-eu-west-1/events/year=2026/month=11/day=16/part-00017-4f1f7c0e-8d7d-4b5c-9f0e-3c8a2f6b1d27.c000.snappy.parquet
---
.btn-primary--3xK9a { color: #1a2b3c; background: url("/static/media/hero.8f3a2b1c9d0e.png"); }
---
.css-1dimb5e-singleValue, .sc-bdVaJa.kXYZab { margin: 0 0 12px; box-shadow: 0 1px 3px rgba(0,0,0,.12); }
---
@font-face { font-family: Inter; src: url(/fonts/Inter-Regular.2c7b9e1f.woff2) format("woff2"); }
---
2026-11-16T12:34:56.789Z INFO request id=7d9f8c6b5a4e3d2c1b0a9f8e7d6c5b4a path=/v1/tokens/count status=200 took=12ms
---
Nov 16 12:00:01 web-7d9f8c6b5-x2v9k kubelet[1234]: Started container app in pod default/web-7d9f8c6b5-x2v9k
---
trace_id=4bf92f3577b34da6a3ce929d0e0e4736 span_id=00f067aa0ba902b7 sampled=true
---
X-Request-Id: 01HF8Z6Q5Y3N7T2V9W4X8K1M0P
ETag: "33a64df551425fcc55e4d42a148795d9f25f89d4"
---
+49 30 901820, (555) 010-9999, 0800-123-4567, +86 138 0013 8000
---
IBAN DE89 3704 0044 0532 0130 00, BIC COBADEFFXXX, invoice 2026-11-0042
---
https://example.com/blog/2026/11/16/why-we-rotate-our-api-keys-every-90-days-and-you-should-too
---
https://www.youtube.com/watch?v=dQw4w9WgXcQ&list=PLrAXtmErZgOeiKm4sgNOknGvNjby9efdf
---
https://docs.google.com/document/d/1BxiMVs0XRA5nFMdKvBdBZjgmUUqptlbs74OgvE2upms/edit
---
def test_a_token_that_expired_is_refreshed_and_the_request_is_sent_again(client, token_factory): ...
---
test_password_reset_email_contains_link_but_not_the_new_password PASSED [ 42%]
---
tests/auth/test_api_key_rotation.py::TestRotation::test_old_key_is_rejected_after_grace_period PASSED
---
Sehr geehrte Frau Müller, das Passwort für den Gastzugang liegt in einem verschlossenen Umschlag am Empfang.
---
Der Schlüssel zum Erfolg: Aufmerksamkeit, Geduld und 15.000 Stunden Übung.
---
Bitte ändern Sie Ihr Kennwort bis zum 30.11.2026; danach ist die Anmeldung gesperrt.
---
密码必须至少包含 8 个字符,其中包括大写字母、小写字母和数字。
---
请在设置页面更新您的令牌,旧的令牌将于 2026-11-30 失效。
---
パスワードを忘れた場合は、管理者に連絡してください。
---
Le mot de passe est obligatoire ; la clé d'API se trouve dans les paramètres du compte.
---
The key to good design is restraint; the secret of a good test is a good name.
---
My favourite key is B flat minor. The password is somewhere on a sticky note, I think.
---
The shard key is 9f86d081884c7d659a2feaa0c55ad015 and the partition key is user_id.
---
cache key: user:42:profile:v3:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b
---
Idempotency-Key: 8e03978e-40d5-43dd-bc93-6894a57f9324
---
"next_page_token": "CAUQAA", "page_token": null, "nextPageToken": "~!!~AI9FV7S"
---
token_type_ids = torch.zeros((1, 512), dtype=torch.long); pad_token_id = tokenizer.pad_token_id
---
max_tokens: 4096, prompt_tokens: 1234, completion_tokens: 567, total_tokens: 1801
---
primaryKey: true, foreignKey: "user_id", sortKey: "created_at", keyPath: "id"
---
SELECT key, value FROM state WHERE scope = 'index' AND key = 'progress';
---
for key, value in sorted(items.items(), key=lambda pair: pair[1], reverse=True): print(f"{key}: {value}")
---
const { data: secretsList, isLoading } = useQuery({ queryKey: ["secrets", projectId], queryFn: fetchSecrets });
---
aws secretsmanager get-secret-value --secret-id prod/db/password --query SecretString
---
kubectl create secret generic db-credentials --from-file=./username.txt --from-file=./password.txt
---
vault kv get -field=password secret/data/production/postgres
---
password: ${{ secrets.DB_PASSWORD }}
token: ${GITHUB_TOKEN}
api_key: !secret weather_api_key
---
export API_KEY="$(security find-generic-password -s openai -w)"
---
Authorization: Bearer <token>
X-Api-Key: YOUR_API_KEY
---
ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl alice@laptop
---
SHA256:nThbg6kXUpJWGl7E1IGOCspRomTxdCARLviKw6E5SY8 root@build (ED25519)
---
-----BEGIN CERTIFICATE REQUEST-----
(see the attached file)
-----END CERTIFICATE REQUEST-----
---
{"id":"chatcmpl-9XnQ2bTqL7yJd0rFvKcZ8aWm3sEuP","object":"chat.completion","model":"gpt-5"}
---
{"type":"message","id":"msg_01XFDUDYJgAACzvnptvVoYEL","stop_reason":"tool_use","usage":{"output_tokens":42}}
---
{"tool_use_id":"toolu_01A09q90qw90lq917835lq9","type":"tool_result","content":"ok"}
---
cus_NffrFeUfNV2Hib, pi_3MtwBwLkdIwHu7ix28a3tqPa, evt_1NG8Du2eZvKYlo2CUI79vXWy, price_1MoBy5LkdIwHu7ixZhnattbh
---
bitcoin:bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdq and 1BvBMSEYstWetqTFn5Au4m4GFg7xJaNVN2
---
ipfs://bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi and QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWKPV55
---
nix-store: /nix/store/5rnfzla9kcx4mj5zdc7nlnv8na1najvg-firefox-121.0
---
%PDF-1.7 /ID [<4E949515AAF132498F650E7BDE6CDC2F><4E949515AAF132498F650E7BDE6CDC2F>]
---
Segmentation fault at 0x00007ffd5e8e3b40, build id 8f2b6c1d9e0a7f3b5c4d2e1f0a9b8c7d6e5f4a3b
---
1st Lt. A. B. Key moved the token ring to room 4b1d; see ticket KEY-1234 and RFC 6750 (Bearer Token Usage).
---
eslint: 'secretKey' is assigned a value but never used  no-unused-vars
---
warning: unused variable: `access_token` --> src/auth.rs:42:9
---
DeprecationWarning: ssl.wrap_socket() is deprecated, use SSLContext.wrap_socket() (key_file=None, cert_file=None)
---
ERROR 1045 (28000): Access denied for user 'root'@'localhost' (using password: YES)
---
psql: error: connection to server at "localhost" (127.0.0.1), port 5432 failed: fe_sendauth: no password supplied
---
TOKEN_URL=https://login.example.com/oauth/token
TOKEN_TTL_SECONDS=3600
PASSWORD_MIN_LENGTH=12
SECRET_NAME=prod/payments/stripe
KEY_FILE=/etc/ssl/private/server.key
---
| Setting | Default | Meaning |
|---|---|---|
| token_limit | 4096 | tokens of an answer |
| password_policy | strict | see the handbook |
| api_key_header | X-Api-Key | header of the key |
---
| name | sha256 |
|---|---|
| perdure-1.4.0.tar.gz | e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 |
---
user_id,session_id,token_count,updated_at
42,8e03978e-40d5-43dd-bc93-6894a57f9324,1801,2026-11-16T12:00:00Z
"""


def written_texts() -> list[str]:
    return [text.strip("\n") for text in WRITTEN.split("\n---\n")]


def drawn_texts(count: int, seed: int = 11) -> list[str]:
    """Texts around ids, hashes and encoded data, which look random and open nothing."""
    rng = Random(seed)

    def base62(length: int) -> str:
        return "".join(rng.choices(_BASE62, k=length))

    def low(length: int) -> str:
        return "".join(rng.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=length))

    makers = (
        lambda data: f"commit {sha1(data).hexdigest()}\nAuthor: A. Miller <a@example.com>\n\n    Count tokens once",
        lambda data: f"{sha1(data).hexdigest()[:7]} ({sha1(data).hexdigest()}) HEAD -> main, tag: v2.3.1",
        lambda data: f"id: {UUID(bytes=data)}, parent: {UUID(bytes=data[::-1])}, kind: session",
        lambda data: f'<img src="data:image/png;base64,{b64encode(data * 100).decode()}" alt="logo">',
        lambda data: f"FROM python:3.12-slim@sha256:{sha256(data).hexdigest()}",
        lambda data: f'"integrity": "sha512-{b64encode(sha512(data).digest()).decode()}",',
        lambda data: f"example.com/mod v1.{data[0]}.0 h1:{b64encode(sha256(data).digest()).decode()}",
        lambda data: f"md5sum: {md5(data).hexdigest()}  release-2.{data[1]}.tar.gz",
        lambda data: f"pod/api-gateway-{low(9)}-{low(5)} 1/1 Running 0 4h12m 10.0.3.{data[2]}",
        lambda data: f"./dist/assets/index-{base62(8)}.js  142.31 kB │ gzip: 45.{data[3]} kB",
        lambda data: f"i-0{data.hex()[:16]} in vpc-0{data.hex()[8:24]} (eu-central-1a), eipalloc-0{data.hex()[4:20]}",
        lambda data: f'{{"id": "req_{base62(24)}", "object": "response", "created": 17{data[4]:03d}00000}}',
        lambda data: f'{{"event": "evt_{base62(24)}", "customer": "cus_{base62(14)}"}}',
        lambda data: f"https://example.com/articles/{data[5]}-how-to-keep-a-secret-and-other-stories?ref=newsletter",
        lambda data: f"2026-11-16T12:{data[6] % 60:02d}:00Z level=info trace={data.hex()} token_count={data[7]}",
        lambda data: f"/home/me/.cache/pip/http/{data.hex()[:1]}/{data.hex()[1:2]}/{sha256(data).hexdigest()}",
        lambda data: f"build-{data.hex()[:12]} uploaded artifact bundle-{sha1(data).hexdigest()}.zip",
        lambda data: f"session {UUID(bytes=data)} used 1,{data[8]:03d} tokens; the key of the cache is {data.hex()}",
    )
    return [makers[i % len(makers)](rng.randbytes(16)) for i in range(count)]


def innocent_documents() -> list[str]:
    """Two hundred of them."""
    written = written_texts()
    return [*written, *drawn_texts(200 - len(written))]
