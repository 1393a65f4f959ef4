"""Texts with a made-up secret in every place where one is put: settings, code, headers, URLs, key blocks."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from random import Random

from benchmarks.secret_samples import Sample, draw_key, draw_password

# «key» is drawn at random, «pw» is a password such as people choose.
_TEMPLATES = """
PASSWORD=«pw»
export DB_PASSWORD=«pw»
DB_PASS=«pw»
PGPASSWORD=«pw» psql -h db
MYSQL_PWD=«pw»
docker run -e POSTGRES_PASSWORD=«pw» postgres:16
spring.datasource.password=«pw»
password = «pw»
password: «pw»
    POSTGRES_PASSWORD: «pw»
"password": "«pw»"
'password': '«pw»',
{\\"password\\": \\"«pw»\\"}
A=1\\nPASSWORD=«pw»\\nB=2
$password = "«pw»";
password := "«pw»"
String password = "«pw»";
const password: string = "«pw»";
password: str = '«pw»'
self.password = "«pw»"
if password == "«pw»":
connect(user="app", password="«pw»")
'password' => '«pw»',
<password>«pw»</password>
<add key="DbPassword" value="«pw»"/>
{"name": "DB_PASSWORD", "value": "«pw»"}
- name: DB_PASSWORD⏎  value: «pw»
mysqldump --password=«pw» app
tool --password «pw» --verbose
mysql -u root -p«pw» app
sshpass -p «pw» ssh host
curl -u admin:«pw» https://example.com
machine example.com login me password «pw»
CREATE USER app WITH PASSWORD '«pw»';
ALTER USER app IDENTIFIED BY '«pw»';
Server=tcp:db.example.net;User ID=sa;Password=«pw»;Encrypt=True
host=localhost user=app password=«pw» dbname=app
jdbc:mysql://db/app?user=a&password=«pw»
postgres://app:«pw»@db.example.com:5432/app
mongodb+srv://app:«pw»@cluster0.example.net/db
redis://:«pw»@localhost:6379/0
https://me:«pw»@example.com/path
my password is «pw», please log in
The password is: «pw»
**Password:** «pw»
密码是«pw»，请登录
密码：«pw»。
パスワードは「«pw»」です
비밀번호: «pw»
api_key = "«key»"
const apiKey = '«key»';
API_KEY=«key»
export AWS_SECRET_ACCESS_KEY=«key»«key»
aws_secret_access_key = «key»«key»
ENV API_KEY «key»
$env:API_KEY="«key»"
os.environ["API_KEY"] = "«key»"
X-API-Key: «key»
x-auth-token: «key»
tool --api-key «key»
tool --token=«key»
{\\"access_token\\":\\"«key»\\"}
"refreshToken": "«key»"
client_secret=«key»&grant_type=client_credentials
https://example.com/cb?access_token=«key»&state=1
//registry.example.com/:_authToken=«key»
AccountName=store;AccountKey=«key»«key»«key»==;EndpointSuffix=core.example.net
Endpoint=sb://bus.example.net/;SharedAccessKeyName=Root;SharedAccessKey=«key»«key»=
https://store.example.net/c?sv=2024-01-01&sig=«key»«key»%3D&se=2030
https://bucket.example.com/o?X-Amz-Expires=60&X-Amz-Signature=«key»«key»
Authorization: Bearer «key»
"Authorization": "Bearer «key»"
curl -H 'Authorization: Bearer «key»' https://example.com
headers.set("Authorization", "Bearer «key»")
Authorization: token «key»
the call used bearer «key» and failed
Cookie: theme=dark; sessionid=«key»; lang=en
Cookie: sso_ticket=«key»«key»
Set-Cookie: connect.sid=s%3A«key»; Path=/; HttpOnly
PHPSESSID=«key»
https://hooks.slack.com/services/T0AB12CD3/B0AB12CD3/«key»
https://discord.com/api/webhooks/123456789012345678/«key»«key»«key»
https://«key»«key»@git.example.com/repo.git
SECRET_KEY="«key»«key»"
JWT_SECRET=«key»
"""
_BLOCKS = ("RSA PRIVATE KEY", "EC PRIVATE KEY", "PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK")


def placed(seed: int = 0) -> Iterator[Sample]:
    """One text for each place, with a new secret in it."""
    rng = Random(seed)
    for template in _TEMPLATES.strip("\n").split("\n"):
        secret = draw_key(rng, 24) if "«key»" in template else draw_password(rng)
        text = template.replace("«key»", secret).replace("«pw»", secret).replace("⏎", "\n")
        yield Sample("place", text, secret)
    login = b64encode(f"me:{draw_password(rng)}".encode()).decode()
    yield Sample("place", f"Authorization: Basic {login}", login)
    yield from _key_blocks(rng)


def _key_blocks(rng: Random) -> Iterator[Sample]:
    for kind in _BLOCKS:
        lines = [draw_key(rng, 64) for _ in range(6)]
        block = "\n".join([f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----"])
        yield Sample("private-key", block, lines[3])
        yield Sample("private-key", json.dumps({"private_key": block}), lines[3])
        yield Sample("private-key", block[: block.index(lines[5])], lines[3])
