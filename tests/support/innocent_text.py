"""Lines that speak of secrets and hold none: code, settings without a value, stand-ins, prose, hashes, paths."""

from __future__ import annotations

INNOCENT = r"""
password = get_password()
token_count = 5
max_tokens=4096
"max_tokens": 4096
api_key=os.environ["OPENAI_API_KEY"]
api_key = os.getenv("OPENAI_API_KEY")
apiKey: process.env.OPENAI_API_KEY
password=${DB_PASSWORD}
PASSWORD=$DB_PASSWORD
password: <your-password>
API_KEY=your-api-key
API_KEY=your_api_key_here
API_KEY="<token>"
token: ****
password: ********
password: string
password: str
password: Optional[str] = None
def login(username, password=None):
login(username=username, password=password)
login(user=user1, password=password1)
auth = (user, password)
token = tokenizer.next_token()
token = tokens[i]
const token = await getToken();
secret_name = "my-secret"
secretName: db-credentials
secretKeyRef:
  key: password
key: "user_id"
cache-key: node-modules-9f8a7b6c5d4e3f2a1b0c9d8e7f6a5b4c3d2e1f0a
commit 9f8a7b6c5d4e3f2a1b0c9d8e7f6a5b4c3d2e1f0a
session_id: 550e8400-e29b-41d4-a716-446655440000
"sessionId":"550e8400-e29b-41d4-a716-446655440000"
sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
/home/user/.ssh/id_rsa
PWD=/home/user/project
password_hash = bcrypt.hash(password)
passwordField: "input-password"
<input type="password" name="password" placeholder="Password">
password: "Enter your password"
"password": "Password"
"password": {"type": "string"}
errors.password = "is required"
'password' => 'required|string|min:8',
Password:
PASS: TestFoo123
--- PASS: TestE2E_Foo (1.2s)
the token is invalid
the password is required
The key is 5 characters long
Bearer token authentication
Basic authentication is used
Authorization: Bearer <token>
Authorization: Bearer ${TOKEN}
Authorization: Bearer $TOKEN
Authorization: Bearer YOUR_API_KEY
Authorization: `Bearer ${token}`
postgres://${USER}:${PASS}@host/db
postgres://user:<password>@host/db
postgres://user:****@host/db
f"postgres://{user}:{password}@{host}/{db}"
http://localhost:8080/path@v1
git@github.com:foo/bar.git
https://github.com/foo/bar@v1.2.3
npm install @scope/pkg@1.2.3
ssh://git@host:22/repo
sk-loading-spinner-container-large
sk-ant-...
sk-xxxxxxxxxxxxxxxxxxxxxxxx
ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
hf_hub_download_with_progress_bar_enabled
npm_config_user_agent_string_value_here
token: 12345
num_tokens: 1234
"completion_tokens": 512, "prompt_tokens": 1024
next_page_token: "CAUQAA9f8a7b6c5d4e"
nextToken = "eyJ2IjoiMiIsImMiOiJhYmNkZWYifQ=="
tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
token_type: "Bearer"
primary_key=True
foreign_key = "users.id"
public_key: "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQC7"
key = lambda x: x[1]
sorted(items, key=operator.itemgetter(1))
secret: Uint8Array
password: u8
token: int64
private_key_path = "/etc/ssl/private/key.pem"
PASSWORD_FILE=/run/secrets/db_password
SECRET=/run/secrets/db
password = input("Password: ")
password=self.password
password = config["password"]
password = data.get('password')
token = request.headers.get("Authorization")
if (token === undefined) return
case 'password':
password: { required: true }
"token": "identifier"
accessToken: string;
cookie: string;
Cookie: auth.cookie
setCookie("theme", "dark")
-----BEGIN PUBLIC KEY-----
-----BEGIN RSA PRIVATE KEY-----\nMIIE...\n-----END RSA PRIVATE KEY-----
"-----BEGIN PRIVATE KEY-----\n" + key + "\n-----END PRIVATE KEY-----"
${{ secrets.GITHUB_TOKEN }}
GITHUB_TOKEN: ${{ secrets.GITHUB_TOKEN }}
TOKEN=$(cat token.txt)
TOKEN=`cat token.txt`
API_KEY=xxx
OPENAI_API_KEY: ...9doi
API_KEY=changeme
API_KEY=CHANGE_ME
PASSWORD=changeme
password = "changeme"
PASSWORD=
PASSWORD=""
PASSWORD=None
use --password to set the password
--token <TOKEN>
--api-key KEY
--password-stdin
data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==
integrity sha512-Z2wnH8m9Zb0aQ7mJQf3c2n1c8L4V5l3V0q0vYc1aYb7gqkqQ1c0H8Q6E5l5Z2Q7wq4x6y8z9A0B1C2D3E4F5G6H7==
"etag": "W/\"1a2b3c4d5e6f7a8b9c0d\""
arn:aws:iam::123456789012:role/MyRole
claude-3-5-sonnet-20241022
550e8400-e29b-41d4-a716-446655440000
session = requests.Session()
ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl
credentials: "include"
credentials: 'same-origin'
auth: { type: "oauth2" }
"author": "John Smith2000"
authority = "login.microsoftonline.com"
keyboard: "qwerty123"
monkey = "abc12345"
the secret: never give up
Token: The unit of text
PASSWORD_MIN_LENGTH=12
passwordStrength = 4
secret_version: v1
token_url: https://oauth2.googleapis.com/token
API_KEY=test
apiKey: 'test-key'
api_key="fake-key-for-tests"
password: ${{ inputs.password }}
password: {{ vault_password }}
password: !vault |
password: "{{ lookup('env','PW') }}"
password = "%s" % pw
"password": password,
{ email, password: hashedPassword }
password: hash1,
return jwt.sign(payload, secret)
secret: process.env.SECRET || 'x'
KEY_ENTER=13
API_KEY_HEADER = "X-API-Key"
TOKEN_PATTERN = r"[A-Za-z0-9]+"
tokens: 12,345
access_token_url="https://x.y/oauth2"
DATABASE_URL=postgres://localhost:5432/app
OPENAI_API_KEY=sk-...
password|passwd|pwd
grep -n "password" src/auth.py:12
auth.py:12: password = form.password.data
src/token.go:45: token := parser.Next()
secrets.token_hex(16)
password: 'a password',
const passwordRegex = /^[a-z0-9]{8,}$/
password.length >= 8
password: z.string().min(8)
password: Joi.string().required()
password = Column(String(128))
password = models.CharField(max_length=128)
password_reset_token_expires: 3600
"tokenUsage": {"input": 123}
TOKEN_EXPIRY=3600
token_budget=100000
const tokens = text.split(" ")
for token in doc: print(token.text, token.pos_)
key: 'Enter'
<Key id="123abc456def"/>
api_key_id: 5
apiKeyId = "abc"
auth: admin
"auth": "none"
Auth: JWT
authToken?: string
passwordless: true
secret: true
"secret": false
SECRET_LENGTH = 32
secrets: inherit
password: required
password: yes
password -> hash
password=>hash
password:hash
see https://docs.example.com/auth#password=reset
https://example.com/reset-password?token=<token>
https://example.com/reset-password?token={token}
https://example.com:8443/@user/path
http://[::1]:8080/
https://registry.npmjs.org/@types/node/-/node-20.1.0.tgz
token: ghp_****************
key=sk-****1234
Authorization: Bearer ...
Authorization: Basic <credentials>
Authorization: Basic base64(user:pass)
Basic usage: foo
Basic dXNlcg
set PASSWORD=%DB_PASSWORD%
password: ENC(abcdef)
password: vault:secret/data/db#password
password: op://vault/item/password
password: arn:aws:secretsmanager:us-east-1:123456789012:secret:db-AbCdEf
PASSWORD=`pass show db`
api_key: str = Field(default="", env="OPENAI_API_KEY")
api_key = config.get("api_key")
api_key=settings.OPENAI_API_KEY
apiKey: config.openai.apiKey
"api_key": "OPENAI_API_KEY"
api_key_env: OPENAI_API_KEY
env_key = "AZURE_OPENAI_API_KEY"
token = localStorage.getItem('token')
token: req.headers.authorization
password: faker.internet.password()
secret = crypto.randomBytes(32).toString("hex")
commit: 3f2c1a9
Merge pull request #12 from user/token-refresh-2024
checkpoint 180431deb4a2
md5: d41d8cd98f00b204e9800998ecf8427e
"integrity": "sha512-abcDEF123+/=="
id: chatcmpl-9f8a7b6c5d4e3f2a1b0c
"tool_call_id": "call_9f8a7b6c5d4e3f2a1b0c9d8e"
toolu_01A2b3C4d5E6f7G8h9J0kLmN
msg_01XFDUDYJgAACzvnptvVoYEL
req_011CSHoEeqs5C35K2UUqR7Fy
"key": "9f8a7b6c5d4e3f2a1b0c9d8e7f6a5b4c"
cache_key=9f8a7b6c5d4e3f2a1b0c9d8e7f6a5b4c
idempotency_key: 9f8a7b6c5d4e3f2a1b0c9d8e7f6a5b4c
partition_key = "user#123abc456"
pk_live_visible_is_public
the token sk-ant-… was removed
password [REDACTED]
Password: [hidden]
password: (unchanged)
password:	********
--password PASSWORD
--password <password>
--token TOKEN  API token
--api-key string   API key to use (default "$API_KEY")
--password string
PASSWORD   the password
fatal: could not read Password for 'https://github.com'
Enter passphrase for key '/home/u/.ssh/id_rsa':
bad password: got 3 tries
password: 3 failed attempts
error: invalid token: unexpected token '}' at line 5
Unexpected token: punc (})
SyntaxError: Unexpected token < in JSON at position 0
token: 42, line: 17
secret-scanning: enabled
secretsmanager:GetSecretValue
kubectl get secret my-secret-abc12 -o yaml
secret/db-secret-5f7d8 created
apiVersion: v1
kind: Secret
author: foo <foo@bar.com>
compass=12 bypass=abc123 passage: abc12345
monkey: k3y8oard1
turkey=abc123def456
hotkey: ctrl+shift+f5
keyId: abc123def456
sidekick=abc123 sid=123
design=abc signal=abc
user_password_hash: $2b$12$KIXQ8e0Q9yJ1mJx1mJx1mO
tokenizer: cl100k_base
tokenizer=o200k_base
token_id=128009
eos_token: <|im_end|>
"bos_token": "<s>"
"pad_token": "[PAD256]"
auth_method: oauth2
auth: oauth2
authentication: sha256
auth="basic"
passed=12 failed=3
pass: 12, fail: 0
passes=5 pass1=3
rows are identified by "state" here
"""


def innocent_lines() -> list[str]:
    return INNOCENT.strip("\n").split("\n")
