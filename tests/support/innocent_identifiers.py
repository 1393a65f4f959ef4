"""Lines with identifiers, digests, builds, cursors and addresses: random characters that open nothing."""

from __future__ import annotations

INNOCENT = r"""
price_1MoBy5LkdIwHu7ixZhnattbh
cus_NffrFeUfNV2Hib
"customer": "cus_9s6XKzkNRiz8i3", "payment_intent": "pi_3MtwBwLkdIwHu7ix28a3tqPa"
pi_3MtwBwLkdIwHu7ix28a3tqPa succeeded
sub_1MowQVLkdIwHu7ixeRlqHVzs renewed
"id": "evt_1NG8Du2eZvKYlo2CUI79vXWy"
ch_3MmlLrLkdIwHu7ix0snN0B15
acct_1032D82eZvKYlo2C
prod_NWjs8kKbJWmuuc
in_1MtHbELkdIwHu7ixl4OzzPMv paid
txn_1MiN3gLkdIwHu7ixxapQrznl
chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT
"id": "resp_67ccd2bed1ec8190b14f964abc0542670bb6a6b452d3795b"
"item_id": "msg_67ccd2bf17f0819081ff3bb2cf6508e60bb6a6b452d3795b"
"call_id": "call_12345xyzABCDEF67890ghijk"
rs_67ccd2bed1ec8190b14f964abc0542670bb6a6b452d3795b
fc_67ccd2bed1ec8190b14f964abc0542670bb6a6b452d3795b
asst_abc123DEF456ghi789JKL012
thread_v1LqOe2TzYbWk3mN8pRsXuAd
run_9pVfK3mQ2xYtWz7LbNcRhJdS
file-9SSyVzVpbL3JwzqMZT7vNd
org-8HfKQ2mPzXt5VbNjRwYcLsDa
proj_5tG7kQmZ2xVbNpLsWcRyHfJd
batch_671284c2bc508190ac2ee4b6ef3b2d75
"next_page": "page_MjAyNS0wNS0xNFQwMDowMDowMFpxYk7vK2"
toolu_01XFDUDYJgAACzvnptvVoYEL
msgbatch_01HkcTjaV5uDC8jWR4ZsDV8d
gen-1717171717-AbCdEfGhIjKlMnOpQrSt
ftjob-abc123XYZ789def456GHI012
ft:gpt-4o-mini-2024-07-18:acme::B2xYz9Qk
claude-3-7-sonnet-20250219-v1
anthropic.claude-3-5-sonnet-20241022-v2:0
meta-llama/Llama-3.3-70B-Instruct-Turbo
gpt-4o-realtime-preview-2024-12-17
Qwen2.5-Coder-32B-Instruct-GPTQ-Int4
mistral-7b-instruct-v0.3.Q4_K_M.gguf
text-embedding-3-large
user_2NNEqL2nrIRdJ194ndJqAHwEfxC
org_2NNEqL2nrIRdJ194ndJqAHwEfxC
sess_2NNEqL2nrIRdJ194ndJqAHwEfxC
evt_01H8XGJWBWBAQ4Z1N3V5G7K9MT
user_01h455vb4pex5vsknk084sn02q
01ARZ3NDEKTSV4RRFFQ69G5FAV
c_01ARZ3NDEKTSV4RRFFQ69G5FAV
s_9f8a7b6c5d4e3f2a1b0c9d8e7f6a5b4c
t_9f8a7b6c5d4e3f2a1b0c9d8e7f6a5b4c
conversation c_7Kq2mZx9TbVn4LsWcRyHfJdP
i-0a1b2c3d4e5f67890 running
vpc-0a1b2c3d4e5f67890
subnet-0bb1c79de3EXAMPLE
sg-903004f8a1b2c3d4e
ami-0abcdef1234567890
eni-0a1b2c3d4e5f67890 attached
vol-049df61146c4d7901
snap-066877671789bd71b
rtbassoc-0a1b2c3d4e5f67890
vpce-svc-0123456789abcdef0
eipalloc-0a1b2c3d4e5f67890
lt-0a1b2c3d4e5f67890
arn:aws:lambda:us-east-1:123456789012:function:my-func:3
arn:aws:secretsmanager:eu-west-1:123456789012:secret:prod/db-a1B2c3
arn:aws:ecs:us-east-1:123456789012:task/main/8f3a2b1c9d0e4f5a6b7c8d9e0f1a2b3c
MyStack-MyBucketF68F3FF0-1A2B3C4D5E6F7
prod-api-LambdaExecutionRole-1QWER2TYUIOP3
awseb-e-abc123defg-stack-AWSEBAutoScalingGroup-1X2Y3Z4A5B6C7
nginx-deployment-7d9c8b6f5d-x2v9k   1/1   Running   0   3d
api-gateway-6b8f9c7d5-abcde
auth-service-7c9d8f6b54-q8wzx
kube-proxy-x7k2p
coredns-5d78c9869d-7xq9w
gke-prod-cluster-default-pool-3f2a1b9c-x7k2
ip-10-0-12-34.eu-west-1.compute.internal
pvc-3f2a1b9c-4d5e-6f7a-8b9c-0d1e2f3a4b5c
default-token-x7k2p
secret/api-tls-7d9c8b6f5d configured
configmap/app-config-hk9c8m7d2f created
pod-template-hash=7d9c8b6f5d
docker pull ghcr.io/acme/api:sha-9f8a7b6
nginx@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
Digest: sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
 ---> 3f2a1b9c4d5e
Successfully built 3f2a1b9c4d5e
k8s_POD_coredns-5d78c9869d-7xq9w_kube-system_3f2a1b9c-4d5e-6f7a-8b9c-0d1e2f3a4b5c_0
/nix/store/s66mzxpvicwk07gjbjfw9izjfa797vsw-hello-2.12.1
/nix/store/0c1p5z4b0k6v3y9x8w7q6r5s4t3u2i1o-glibc-2.38-44
hash = "sha256-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
sha256 = "0c1p5z4b0k6v3y9x8w7q6r5s4t3u2i1o0c1p5z4b0k6v3y9x8w7q";
rev = "9f8a7b6c5d4e3f2a1b0c9d8e7f6a5b4c3d2e1f0a";
"narHash": "sha256-kP5vXq2mZ8tLbNcRhJdS3xYw7GfVa1QeUoIiTzKp9Mk=",
//src/main/java/com/example:server_lib
@maven//:com_google_guava_guava
@@rules_python~0.31.0~pip~pip_311_numpy//:pkg
bazel-out/k8-fastbuild-ST-4c64f0b3d5c7/bin/server
"integrity": "sha512-v2kDEe57lecTulaDIuNTPy3Ry4gLGJ6Z1O3vE1krgXZNrsQ+LFTGHVxVjcXPs17LhbZVGedAJv8XZ1tvj5FvSg=="
resolved "https://registry.yarnpkg.com/lodash/-/lodash-4.17.21.tgz#679591c564c3bffaae8454cf0b3df370c3d6911c"
github.com/stretchr/testify v1.9.0 h1:HtqpIVDClZ4nwg75+f6Lvsy/wHu+3BoSGCbBAiTpTsg=
golang.org/x/exp v0.0.0-20240506185415-9bf2ced13842
checksum = "e5c94a5f5b8a4f4d5f6a7b8c9d0e1f2a3b4c5d6e7f8091a2b3c4d5e6f7081920"
libserde-3f2a1b9c4d5e6f70.rlib
target/debug/deps/app-3f2a1b9c4d5e6f70
rustc-1.78.0-9b00956e5-20240429
--hash=sha256:58cd2187c01e70e6e26505bca751777aa9f2ee0b7f4300988b709f44e013003f
numpy/core/__init__.py,sha256=BF-HLqzjnBW64nkw3E5OplkXnIkf-OS3SX3HmWJKzyU,5691
numpy-1.26.4-py311h64a7726_0.conda
py310h5eee18b_0
static/js/main.9f8a7b6c.chunk.js
/_next/static/chunks/pages/_app-3f2a1b9c4d5e6f70.js
/_next/static/Zx9TbVn4LsWcRyHfJdP-q/_buildManifest.js
assets/index-BkX9a2Lq.css
chunk-7K2MZX9T.js
vendors-node_modules_react-dom_index_js-9f8a7b6c5d4e3f2a1b0c.js
.css-1q2w3e4r5t { color: red }
.Button_root__3xY9z
class="sc-bdVaJa kQ7xZm MuiButton-root-142 jss143"
data-testid="user-menu-2f4a"
className="sk-loading-spinner-container-large-v2"
<div id="radix-:r1a:" class="w-[calc(100%-2rem)]">
v1.2.3-14-g2414721
commit 2414721b194453f058079d897d13c4e377f92dc6
index 83db48f..bf2a3b1 100644
Merge branch 'feature/token-refresh-2f4a9c'
refs/heads/dependabot/npm_and_yarn/lodash-4.17.21
e69de29bb2d1d6434b8b29ae775ad8c2e48c5391
git checkout 9f8a7b6c5d4e3f2a1b0c9d8e7f6a5b4c3d2e1f0a
stash@{0}: WIP on main: 9f8a7b6 fix token parsing
pick 9f8a7b6 Add api key rotation docs
key: ${{ runner.os }}-node-${{ hashFiles('**/package-lock.json') }}
Cache restored from key: Linux-node-9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
The cache key is 9f86d081884c7d659a2feaa0c55ad015
the primary key is 550e8400-e29b-41d4-a716-446655440000
The idempotency key is 550e8400-e29b-41d4-a716-446655440000.
the partition key is user#9f8a7b6c5d4e3f2a
our S3 object key is uploads/2024/05/9f8a7b6c5d4e3f2a1b0c.png
dedup_key: 9f8a7b6c5d4e3f2a1b0c9d8e7f6a5b4c
sort_key = "ORDER#2024-05-01#9f8a7b6c"
"objectKey": "9f8a7b6c5d4e3f2a1b0c9d8e7f6a5b4c"
Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==
Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=
Surrogate-Key: product-9f8a7b6c5d4e collection-1a2b3c4d
Idempotency-Key: 8e03978e-40d5-43dd-bc93-6894a57f9324
X-Request-Id: 8e03978e-40d5-43dd-bc93-6894a57f9324
x-amz-request-id: 4442587FB7D0A2F9
x-amz-id-2: vlR7PnpV2Ce81l0PRw6jlUpck7Jo5ZsQjryTjKlc5aLWGVHPZLj5NeC6qMa0emYBDXOo6QBU0Wo=
x-amz-version-id: 3HL4kqtJvjVBH40Nrjfkd
CF-RAY: 7d9c8b6f5d4e3f2a-AMS
traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
ETag: "33a64df551425fcc55e4d42a148795d9f25f89d4"
If-None-Match: W/"0815aBcDeFgHiJkLmNoPqRsTuVwX"
Content-MD5: Q2hlY2sgSW50ZWdyaXR5IQ==
Content-Type: multipart/form-data; boundary=----WebKitFormBoundary7MA4YWxkTrZu0gW
Message-ID: <CAF+9xYz2K7mQ4tLbNcRhJdS3xYw7GfVa1Qe@mail.gmail.com>
DKIM-Signature: v=1; a=rsa-sha256; d=example.com; s=s1; bh=47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=
google-site-verification=rXOxyZounnZasA8Z7oaD3c14JdjS9aKSWvsR1EbUSIQ
QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWKPV1G
ipfs://bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi
0xde0B295669a9FD93d5F28D9Ec85E40f4cb697BAe
bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdq
1BvBMSEYstWetqTFn5Au4m4GFg7xJaNVN2
https://docs.google.com/document/d/1BxiMVs0XRA5nFMdKvBdBZjgmUUqptlbs74OgvE2upms/edit
https://www.youtube.com/watch?v=dQw4w9WgXcQ&list=PLrAXtmErZgOeiKm4sgNOknGvNjby9efdf
https://drive.google.com/file/d/1aBcDeFgHiJkLmNoPqRsTuVwXyZ0123456/view?usp=sharing
https://maps.googleapis.com/place?placeid=ChIJN1t_tDeuEmsRUsoyG83frY4
https://example.com/p/summer-sale-2024-9f8a7b6c?utm_source=mail&gclid=EAIaIQobChMI8t6x
https://cdn.example.com/img/3f2a1b9c4d5e6f708192a3b4c5d6e7f8.webp
https://s3.amazonaws.com/bucket/9f8a7b6c-5d4e-3f2a-1b0c-9d8e7f6a5b4c/report.pdf
s3://data-lake/raw/dt=2024-05-01/part-00000-3f2a1b9c-4d5e-6f7a-8b9c-0d1e2f3a4b5c-c000.snappy.parquet
gs://my-bucket/models/ckpt-20240501-123456/weights-00001-of-00008.safetensors
/var/lib/docker/overlay2/9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08/merged
/Users/me/Library/Developer/Xcode/DerivedData/App-fjsdklfjwoeirtuxcvbnmqpwoeir/Build
/tmp/pytest-of-root/pytest-12/test_token_refresh0/a1b2c3.db
C:\Users\me\AppData\Local\Temp\tmp9f8a7b6c5d4e\out.log
node_modules/.pnpm/react-dom@18.2.0_react@18.2.0/node_modules
~/.cache/huggingface/hub/models--bert-base-uncased/snapshots/86b5e0934494bd15c9632b12f734a8a67f723594
hf_hub_download(repo_id="bert-base-uncased")
ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQC7vbqajDhA0tZ1 me@host
SHA256:uNiVztksCsDhcc0u9e8BgrJXVGDWZx3hM1xZ8w6Yh1I me@host (ED25519)
The key fingerprint is SHA256:uNiVztksCsDhcc0u9e8BgrJXVGDWZx3hM1xZ8w6Yh1I
public key is MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=
The public key: age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p
the SHA of the token is 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b
token hash: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
The API key id is 550e8400-e29b-41d4-a716-446655440000
secret version 550e8400-e29b-41d4-a716-446655440000
| api key id | 550e8400-e29b-41d4-a716-446655440000 |
| key | 9f8a7b6c5d4e3f2a1b0c |
| token | 12 |
| Token | Type | Line |
| cache_key | 9f86d081884c7d659a2feaa0c55ad015 |
| Password | required | string |
| commit | 9f8a7b6c5d4e3f2a1b0c9d8e7f6a5b4c3d2e1f0a |
| tokens | 128,000 |
| API key | get one at https://console.example.com/keys |
| `OPENAI_API_KEY` | required | Your key from the dashboard |
| `AUTH_TOKEN` | — | see docs/auth.md#token-rotation-2024 |
| `SECRET_KEY` | `change-me-in-production` | Django secret |
| `GITHUB_TOKEN` | `${{ secrets.GITHUB_TOKEN }}` | provided by Actions |
token,frequency,rank
password,username,role
id,api_key_id,created_at
name,token_count,key_count
"tokens","max_tokens","key_hash"
key,value
token,count
The token bucket algorithm refills 10 tokens per second.
Each token is about four characters, e.g. "antidisestablishmentarianism".
The secret is to keep functions small and well-named.
I set MAX_TOKENS to 4096 and TOKEN_BUDGET to 128000.
Please use gpt-4o-2024-08-06 as the model for token counting.
Set API_KEY to your own key before running the examples.
Use https://example.com/v1 as the base URL for the api key endpoint.
the key is to use sha256 for the digest
a token like `max_new_tokens=512` controls the length
The auth token expires after 3600 seconds (2024-05-01T12:00:00Z).
credential helper: osxkeychain
credentials file: ~/.aws/credentials
GOOGLE_APPLICATION_CREDENTIALS=/etc/gcp/service-account-3f2a1b9c.json
credentialsId: 'github-app-credentials'
"credentialId": "rawId-9f8a7b6c5d4e3f2a1b0c"
credential.helper=store
withCredentials: true
path: src/auth/token_store_v2.py
PATTERN=^[a-z0-9]{8}$
compat=es2022 dispatch=abc12345xyz
"patch": "9f8a7b6c5d4e3f2a1b0c"
lastKey = Object.keys(map)[0]
const cacheKey = `user:${id}:profile`;
const storageKey = 'app.settings.v2'
const queryKey = ['todos', page, 'a1b2c3']
for key, value in sorted(d.items()): print(key, value)
monkeypatch.setenv("OPENAI_API_KEY", "test")
assert redact(token) == "sk-…[REDACTED]"
def test_token_is_refreshed_after_3600_seconds():
KEY_ID=9f8a7b6c5d4e3f2a
PUBLIC_KEY=MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE
NEXT_PUBLIC_KEY_NAME=my-key-2024
COSIGN_PUBLIC_KEY=cosign-2024.pub
SSH_AUTH_SOCK=/tmp/ssh-XXXXXXabc123/agent.1234
XAUTHORITY=/run/user/1000/.mutter-Xwaylandauth.9F8A7B
KEYCODE_ENTER=66
HOTKEY=ctrl+alt+shift+f12
PRIMARY_KEY=id
S3_KEY=backups/2024-05-01/db-9f8a7b6c5d4e.sql.gz
build-9f8a7b6c5d4e3f2a1b0c9d8e7f6a5b4c3d2e1f0a
image-9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08.png
md5-d41d8cd98f00b204e9800998ecf8427e
sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk=
test_0c734b51d8d22acf76dc2fb8313eb43a
tmp_9f8a7b6c5d4e3f2a1b0c9d8e7f6a5b4c
trace_9f8a7b6c5d4e3f2a1b0c9d8e7f6a5b4c
job-9f8a7b6c5d4e3f2a1b0c9d8e7f6a5b4c finished
session-550e8400-e29b-41d4-a716-446655440000
worker-3f2a1b9c-4d5e-6f7a-8b9c-0d1e2f3a4b5c started
backup_20240501_123456_9f8a7b6c.tar.gz
report-2024-05-01T12-00-00Z-v2.json
_ZN4core3fmt9Formatter9write_str17h0123456789abcdefE
_ZNSt8__detail9_Map_baseINSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE
std::collections::HashMap<K, V>::insert_unique_9f8a7b
?AVCWinApp@@QAEXXZ
00000000  89 50 4e 47 0d 0a 1a 0a  00 00 00 0d 49 48 44 52  |.PNG........IHDR|
0x00007fff5fbff8a0: 0xdeadbeefcafebabe 0x0123456789abcdef
ff d8 ff e0 00 10 4a 46 49 46 00 01
\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR
a.b2c3d4e5.prototype.f6g7h8i9=function(t){return this.k1l2m3n4[t]};
//# sourceMappingURL=data:application/json;base64,eyJ2ZXJzaW9uIjozLCJzb3VyY2VzIjpbXX0=
"mappings":"AAAA,SAASA,EAAEC,GAAG,OAAOA,EAAEC,EAAE"
url(data:font/woff2;base64,d09GMgABAAAAAAJ8AAwAAAAABXQAAAIvAAEAAAAA)
令牌桶算法每秒补充 10 个令牌
密码长度至少为 8 位，包含数字和字母
请在 config.yaml 里设置 api_key，不要提交到仓库
トークンの上限は128000です
토큰 수는 4096개입니다
モデルは claude-3-5-sonnet-20241022 を使います
ключ кэша: 9f86d081884c7d659a2feaa0c55ad015
de 密钥 轮换 脚本: scripts/rotate_keys_v2.sh
SELECT token, count(*) FROM events WHERE key = 'a1b2c3d4e5f6' GROUP BY 1
INSERT INTO users (id, email) VALUES ('550e8400-e29b-41d4-a716-446655440000', 'a@example.com');
ERROR: duplicate key value violates unique constraint "users_pkey_3f2a1b9c4d5e6f70"
DETAIL: Key (id)=(550e8400-e29b-41d4-a716-446655440000) already exists.
KeyError: 'user_9f8a7b6c5d4e3f2a1b0c'
jwt.exceptions.DecodeError: Not enough segments
TokenError: ('EOF in multi-line statement', (120, 0))
panic: runtime error: index out of range [5] with length 3 goroutine 1 [running]: main.(*Token).Next(0xc000010a28)
2024-05-01 12:00:00,123 INFO [a1b2c3d4e5f60718293a4b5c6d7e8f90] key rotation finished
level=info msg="auth ok" user=9f8a7b6c-5d4e-3f2a-1b0c-9d8e7f6a5b4c trace_id=4bf92f3577b34da6a3ce929d0e0e4736
[req-3f2a1b9c-4d5e-6f7a-8b9c-0d1e2f3a4b5c] token validated in 12ms
"device_token_count": 3, "keyVersion": "v2-20240501"
EAS build ID: 3f2a1b9c-4d5e-6f7a-8b9c-0d1e2f3a4b5c
provisioning profile 9F8A7B6C-5D4E-3F2A-1B0C-9D8E7F6A5B4C
Apple Team ID: 9F8A7B6C5D
MAC 3c:22:fb:9a:1b:2c IMEI 490154203237518
VIN 1HGCM82633A004352, IBAN DE89370400440532013000
ISBN 978-3-16-148410-0, DOI 10.1000/xyz123abc456
Order #A1B2-C3D4-E5F6 shipped
SKU: KB-2024-US-ISO-RGB-87KEY
phone +49 151 23456789, room 4B-12
0.1.0-alpha.20240501+9f8a7b6c5d4e
linux-x86_64-gnu-9f86d081884c7d659a2feaa0c55ad015
yarn-v1-9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
v1-dependencies-3kP5vXq2mZ8tLbNcRhJdS3xYw7GfVa1QeUoIiTzKp9Mk=
lockfile-kP5vXq2mZ8tLbNcRhJdS3xYw7GfVa1QeUoIiTzKp9Mk
"nextPageToken": "CiAKGjBpNDd2Nmp2Zml2cXRwYjBpOXA"
"continuationToken":"1!48!MDAwMDA2IWZvby50eHQhMDAwMDI4ITk5OTk"
"NextToken": "AQICAHgZx9TbVn4LsWcRyHfJdP8kP5vXq2mZ8t"
pageToken=CAUQAA9f8a7b6c5d4eZx9TbVn4
syncToken: "CPDAlvWDx70CEPDAlvWDx70CGAU="
"cursor": "eyJpZCI6MTIzNDU2fQ=="
"etag": "\"kP5vXq2mZ8tLbNcRhJdS3xYw7GfVa1Qe\""
code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM
state=af0ifjsldkj9f8a7b6c5d4e
nonce="rAnd0m9f8a7b6c5d4e"
script-src 'nonce-Zx9TbVn4LsWcRyHfJdP8kP5v' 'sha256-kP5vXq2mZ8tLbNcRhJdS3xYw7GfVa1QeUoIiTzKp9Mk='
data-sitekey="6LeIxAcTAAAAAJcZVRqyHh71UMIEGNQ_MXjiZKhI"
pk_test_TYooMQauvdEDq54NiTphI7jx
STRIPE_PUBLISHABLE_KEY=pk_test_TYooMQauvdEDq54NiTphI7jx
G-9F8A7B6C5D GTM-K2MZX9T UA-12345678-1
ca-pub-1234567890123456
123456789012-abc123def456ghi789jkl012mno345pq.apps.googleusercontent.com
my-service@my-project-123456.iam.gserviceaccount.com
firebase-adminsdk-x7k2p@my-project-123456.iam.gserviceaccount.com
recIcJBLo0TnJyRnB tblLE2mZ8tLbNcRhJ
U024BE7LH C024BE91L T9TK3CUKW
xkcd-style passphrase: see https://xkcd.com/936/
correct horse battery staple is not a token
"type": "apiKey", "name": "X-API-Key", "in": "header"
securitySchemes: {ApiKeyAuth: {type: apiKey}}
Authorization: AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request
aws_secretsmanager_secret_version.db_2024
azurerm_key_vault_key.generated-9f8a
projects/my-project/locations/global/keyRings/ring1/cryptoKeys/key1/cryptoKeyVersions/3
kms key 1234abcd-12ab-34cd-56ef-1234567890ab
KMS_KEY_ID=1234abcd-12ab-34cd-56ef-1234567890ab
alias/prod-db-key-2024
"""


def identifier_lines() -> list[str]:
    return INNOCENT.strip("\n").split("\n")
