"""Everyday commands of developers: none of them needs approval."""

from __future__ import annotations

_COMMANDS = r"""
cd /home/me/project && python -m pytest tests/ -x -q 2>&1 | tail -20
cat > app.py << 'EOF'$LFimport subprocess$LFsubprocess.run(["rm", "-rf", "/tmp/x"])$LFEOF
cat <<'EOF' > script.sh$LF#!/bin/bash$LFset -e$LFrm -rf "$1"$LFEOF$LFchmod +x script.sh
python3 - <<'EOF' 2>&1 | tail -5$LFimport sys$LFprint(sys.path)$LFEOF
python3 << 'EOF'$LFimport json$LFwith open('data.json') as f:$LF    d = json.load(f)$LFprint(len(d))$LFEOF
cat > a.txt <<EOF$LFhello $USER$LFEOF$LFcat > b.txt <<EOF$LFbye$LFEOF
git add -A && git commit -m "$(cat <<'EOF'$LFfeat: x$LF$LF- a (b)$LF- `c`$LFEOF$LF)" && git push
git log --oneline -5; echo ---; git status --short
grep -rn "def test_" tests | wc -l && ls -la tests/
sed -i 's/old/new/g; s|/a/b|/c/d|' src/*.py
sed -i '/^import os$/d' src/app.py
sed -i -e '10,20d' src/app.py
sed -n '1,/^}/p' main.c
awk '/start/{f=1} f{print} /end/{f=0}' log.txt
awk -F, 'NR>1 {a[$1]+=$2} END {for (k in a) print k, a[k]}' data.csv | sort -k2 -rn | head
find . -name "*.py" -not -path "*/venv/*" | xargs grep -l "TODO" | head -20
find . -type f \( -name '*.js' -o -name '*.ts' \) -print | head
find . -name '*.rej' -o -name '*.orig' | xargs -r rm
for f in $(git diff --name-only); do echo "== $f"; head -3 "$f"; done
for i in 1 2 3; do sleep 1; curl -s localhost:8000/health && break; done
if ! grep -q foo .gitignore; then echo foo >> .gitignore; fi
test -f package.json && cat package.json | python3 -c "import json,sys; print(json.load(sys.stdin)['version'])"
export FOO=bar && ./run.sh "$FOO"
FOO=1 BAR="a b" python script.py --x "$FOO"
source venv/bin/activate; pip install -q -r requirements.txt; pytest -q
(cd sub && make -j4) && echo ok || echo failed
time (for i in $(seq 100); do ./a.out > /dev/null; done)
ps aux | grep -v grep | grep python | awk '{print $2}' | head -1
ps aux | grep '[n]ode server' | awk '{print $2}' | xargs kill
kill $(pgrep -f "python -m http.server") 2>/dev/null; sleep 1
lsof -ti:3000 | xargs kill -9
nohup npm run dev > /tmp/dev.log 2>&1 &
(python -m http.server 8080 > /tmp/http.log 2>&1 &) ; sleep 1; curl -sI localhost:8080
docker run --rm -e POSTGRES_PASSWORD=x -p 5432:5432 -d --name pg postgres:16
docker exec pg psql -U postgres -c "create database app"
docker build . -t app && docker run --rm app pytest
docker rm -f pg
docker cp pg:/tmp/x.sql ./x.sql
psql postgresql://localhost/app -c "\d users"
PGPASSWORD=x psql -h localhost -U app app -c "insert into t values (1)"
sqlite3 data.db ".schema" | head -40
sqlite3 data.db "update t set a = 1 where id = 3"
redis-cli get foo | jq .
curl -s "https://api.example.com/v1/items?page=1&limit=10" | jq '.items | length'
curl -fsS -X POST -H 'Content-Type: application/json' -d '{"query":"{ me { id } }"}' https://api.example.com/graphql
curl -s -u "$USER:$PASS" https://api.example.com/me
curl -o data.zip -L https://example.com/data.zip && unzip -q data.zip -d data
wget -qO- https://example.com/data.csv | head
jq -n --arg a "$A" '{a: $a}' > out.json
python -c "$LFimport pathlib$LFfor p in pathlib.Path('src').rglob('*.py'):$LF    print(p)$LF"
python -c 'import os; print(os.environ.get("HOME"))'
node -e 'const fs=require("fs"); const p=JSON.parse(fs.readFileSync("a.json")); fs.writeFileSync("b.json", p.x)'
npx -y create-vite@latest app --template react-ts
npx jest --testPathPattern 'foo|bar' --silent
npm ls react 2>/dev/null | head
npm i -D typescript @types/node
npm run build 2>&1 | grep -E 'error|warning' | head -20
pnpm add -w zod
yarn set version stable
pip install "fastapi[standard]" 'uvicorn>=0.30'
pip install --upgrade pip setuptools wheel
pip install -e ".[dev,test]" --quiet
pip install torch --index-url https://download.pytorch.org/whl/cpu
pip install ./dist/*.whl --force-reinstall
uv venv && uv pip install -r requirements.txt
poetry add --group dev pytest
cargo add serde --features derive
cargo run --release --bin tool -- --input a.txt > out.txt
go install golang.org/x/tools/cmd/goimports@latest
go get github.com/stretchr/testify@v1.9.0
make clean && make
cmake .. && make -j$(nproc)
gcc -Wall -o main main.c -lm && ./main < input.txt
javac -d out src/*.java && java -cp out Main
rustc --edition 2021 main.rs && ./main
terraform init -upgrade && terraform plan
kubectl get pods -o json | jq -r '.items[].metadata.name'
kubectl apply -k overlays/dev
helm repo add bitnami https://charts.bitnami.com/bitnami && helm repo update
aws s3 ls s3://bucket --recursive | tail
gh pr list --json number,title --jq '.[] | "\(.number) \(.title)"'
gh api repos/o/r/issues --paginate -q '.[].number'
git remote add upstream https://github.com/o/r.git && git fetch upstream
git checkout -b feature/x origin/main
git cherry-pick -x abc1234
git rebase -i --autosquash HEAD~5
git diff HEAD~3 --stat -- '*.py' | cat
git log --format='%H %s' -n 20 | while read h s; do echo "$h: $s"; done
git show HEAD:package.json | jq .version
git ls-remote --tags origin
git grep -n 'foo(' -- '*.py'
git stash && git pull --rebase && git stash pop
git clone --depth 1 https://github.com/o/r /tmp/r && ls /tmp/r
tar -czf dist/app-$(git describe --tags).tar.gz -C build .
zip -qr out.zip src -x '*.pyc'
cp -r src/{a,b}.py backup/ 2>/dev/null || true
mkdir -p build/{bin,lib} && cp a.out build/bin/
mv build/*.log logs/
rm -f /tmp/test_*.txt
rm -rf /tmp/workdir && mkdir -p /tmp/workdir
rm -rf build/ && mkdir build && cd build && cmake ..
rm test_output.json
rm -f src/old_module.py tests/test_old_module.py
chmod +x scripts/*.sh && ./scripts/test.sh
ls -la ~/.config | head
du -sh ~/.cache
cat /proc/cpuinfo | grep 'model name' | head -1
cat /etc/os-release
which node npm python3 2>/dev/null
echo $PATH | tr ':' '\n' | head
env | grep -i path
date '+%Y-%m-%d %H:%M:%S'
seq 1 5 | paste -sd+ | bc
echo 'a b c' | tr ' ' '\n' | sort -r
printf "%s\n" one two three > list.txt
head -c 1000 file.bin | xxd | head -5
base64 -w0 logo.png > logo.b64
openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 365 -subj '/CN=localhost'
ssh-keygen -t ed25519 -N '' -f ./id_test
openssl dgst -sha256 file.txt
diff -ru old/ new/ > changes.patch; patch -p1 < changes.patch
patch -p1 --dry-run < fix.patch
wc -l $(git ls-files '*.py') | tail -1
ls | while read f; do file "$f"; done
ls *.md | xargs -I{} sh -c 'echo {}; head -1 {}'
find . -name '*.ipynb' -exec jupyter nbconvert --clear-output --inplace {} +
xargs -n 1 -P 4 curl -sO < urls.txt
while IFS= read -r line; do echo "$line"; done < <(grep foo a.txt)
while IFS=, read -r a b; do echo "$b"; done < data.csv
mapfile -t files < <(git ls-files); echo "${#files[@]}"
[[ "$(python --version 2>&1)" =~ 3\.([0-9]+) ]] && echo "${BASH_REMATCH[1]}"
case "$1" in -h|--help) echo help ;; *) echo other ;; esac
function run() { echo "+ $*"; "$@"; }; run ls -la
set -x; ls; set +x
trap 'rm -f /tmp/lock' EXIT; touch /tmp/lock
cmd="ls -la"; $cmd
PY=python3; $PY -V
"$HOME/.cargo/bin/cargo" build
$(npm bin)/eslint src
./venv/bin/python -c 'print(1)'
eval "$(pyenv init -)"
eval "$(conda shell.bash hook)" && conda activate base
. ~/.nvm/nvm.sh && nvm use 20
tmux new -d -s srv 'python server.py'
screen -dmS srv npm start
watch -n 5 'docker ps'
timeout 10 tail -f app.log || true
ulimit -n 4096; ./server &
jobs; wait
xdg-open index.html
code .
systemctl --user status foo
journalctl -u app --since today | tail
crontab -l | grep backup
scp -P 2222 dist/app.js deploy@host:/srv/app/
rsync -az --delete --dry-run dist/ deploy@host:/srv/app/
ping -c 2 8.8.8.8
nslookup example.com
nc -vz localhost 6379
python manage.py migrate --check
python manage.py loaddata fixtures/*.json
alembic revision --autogenerate -m 'add x'
flask db upgrade
bundle exec rubocop -A
mix test --cover
composer require monolog/monolog
php artisan test
dotnet run --project src/App
swift build && swift test
flutter pub get && flutter test
gradle -q dependencies | head
jest --ci -u
playwright install chromium
pre-commit install
git config core.hooksPath
git config --local user.email me@example.com
npm config list
pip config list
make > /dev/null 2>&1
make 2>/dev/null
echo oops >&2
echo hi > /dev/stderr
echo done > /proc/self/fd/1
cargo build 2>&1 | tee build.log
date > /tmp/started
echo x >> /tmp/notes.txt
cp app.log /tmp/
mv /tmp/x.json .
mv ~/Downloads/data.csv data/
cp ~/Downloads/data.csv data/
d=$(mktemp -d); echo x > "$d/out.txt"; rm -rf "$d"
f=$(mktemp); curl -s https://example.org > "$f"
cat notes.md > "$OUT"
dd if=/dev/zero of=/tmp/test.img bs=1M count=1
tar xzf a.tgz -C /tmp
curl -o /tmp/page.html https://example.org
sed -i s/a/b/ src/x.py
mkdir -p ~/projects
ls ~/.ssh
cat ~/.ssh/id_rsa.pub
grep -rn TODO src
grep -r TODO .
rg --hidden TODO .
rg TODO ~
kubectl get secrets
gh auth status
python3 -c "print(open('/home/me/data.csv').read()); open('out.txt','w')"
python3 -c "open('/tmp/x','w').write('a')"
docker exec web sh -c 'echo x > /app/flag'
ls -la
ls -R src | head -50
cd src && ls
pwd
cat README.md
head -n 20 src/app.py
tail -f logs/app.log
less docs/index.md
wc -l src/*.py
tree -L 2
stat package.json
file bin/tool
du -sh * | sort -h
df -h
free -m
uname -a
whoami
date +%s
env | grep PATH
printenv HOME
echo "hello world"
echo $PATH
echo 'rm -rf /'
echo "do not run rm -rf / here" >> notes.md
grep -rn 'rm -rf' scripts/
grep -r "DROP TABLE" migrations/
grep -v '^#' .env.example
rg -n "TODO" --type py
rg 'git push --force' docs
ag pattern src
find . -name '*.py'
find . -type f -name '*.ts' -not -path './node_modules/*'
find src -name '*.py' -exec grep -l import {} +
find . -name '*.py' | xargs wc -l
find . -name '*.js' -print0 | xargs -0 grep -n foo
find . -name '*.pyc' -delete
find . -type d -name __pycache__ -exec rm -rf {} +
find . -name '__pycache__' -type d | xargs rm -rf
find . -name .DS_Store -delete
find . -name node_modules -prune -o -name '*.ts' -print
sed -n '1,40p' src/app.py
sed -i 's/foo/bar/g' src/app.py
sed -e 's/a/b/' file > out.txt
awk '{print $1}' data.csv
awk -F: '{ sum += $2 } END { print sum }' data.txt
cut -d, -f1 data.csv | sort | uniq -c
sort -u names.txt -o names.txt
diff -u a.py b.py
diff <(sort a) <(sort b)
tr -d '\r' < in.txt > out.txt
jq '.scripts' package.json
cat package.json | jq -r .version
touch src/new.py
mkdir -p src/lib/deep
cp config.example.yml config.yml
cp -r templates/base new-project
mv old.py new.py
mv src/a.py src/lib/
ln -s ../shared shared
rm notes.txt
rm -f build.log
rm src/old.py tests/test_old.py
rm -f *.pyc
rm *.log
rm -rf node_modules
rm -rf node_modules package-lock.json && npm install
rm -rf build dist
rm -rf build/ dist/ *.egg-info
rm -rf ./dist/*
rm -rf target
rm -rf __pycache__ .pytest_cache .mypy_cache
rm -rf .next .turbo
rm -rf coverage htmlcov .coverage
rm -rf frontend/node_modules
rm -rf packages/*/dist
rm -rf venv && python3 -m venv venv
cd frontend && rm -rf node_modules && npm ci
rmdir empty
d=$(mktemp -d); cp a "$d"; rm -rf "$d"
for d in build dist; do rm -rf "$d"; done
chmod +x scripts/run.sh
chmod 644 README.md
chmod 755 bin/tool
chmod -R u+w build
chown me file.txt
chmod 600 ~/.ssh/id_ed25519
tar czf release.tgz src
tar xzf release.tgz -C vendor
unzip archive.zip -d out
zip -r out.zip src
gzip -k data.csv
gunzip data.csv.gz
git status
git status -sb
git diff
git diff --stat HEAD~1
git diff --cached
git log --oneline -20
git log -p --follow src/app.py
git show HEAD
git show HEAD:src/app.py
git blame src/app.py
git add -A
git add src/app.py
git commit -m "Fix the thing"
git commit -am 'docs: explain git reset --hard'
git commit --amend --no-edit
git commit -m "$(cat <<'EOF'$LFRemove rm -rf / from scripts$LF$LFIt was; dangerous | really.$LFEOF$LF)"
git push
git push origin main
git push -u origin feature/login
git pull
git pull --rebase origin main
git fetch --all --prune
git branch
git branch -a
git branch -d merged-feature
git branch -m old new
git branch --merged | grep -v main | xargs git branch -d
git checkout main
git checkout -b feature/login
git checkout feature/login
git checkout v1.2.3
git checkout origin/main
git switch main
git switch -c fix/bug
git merge main
git merge --abort
git rebase main
git rebase --continue
git rebase -i HEAD~3
git stash
git stash pop
git stash list
git restore --staged src/app.py
git reset HEAD src/app.py
git reset --soft HEAD~1
git cherry-pick abc123
git revert HEAD
git tag v1.0.0
git remote -v
git clone https://github.com/me/repo.git
git submodule update --init --recursive
git worktree add ../wt main
git clean -n
git clean -nd
git config user.name "Me"
git bisect start
git rev-parse --show-toplevel
git ls-files | wc -l
git rm --cached .env
git rm old.py
git grep -n foo
git reflog
git gc
git apply fix.patch
git -C sub status
npm install
npm ci
npm install --save-dev jest
npm run build
npm test
npm test -- --watch=false
npm run lint -- --fix
npm outdated
npm publish --dry-run
npm uninstall left-pad
npm audit
npm ls --depth=0
npx eslint src --fix
npx tsc --noEmit
npx prettier --write .
npx rimraf dist
npx prisma migrate dev
npx prisma generate
yarn
yarn add react
yarn build
pnpm install --frozen-lockfile
pnpm -r test
bun install
node index.js
node -e "console.log(1 + 1)"
node -p "process.version"
deno run main.ts
pip install -r requirements.txt
pip install -e '.[dev]'
pip list --outdated
pip freeze > requirements.txt
pip uninstall -y requests
python -m pip install --upgrade pip
python -m venv .venv
source .venv/bin/activate
. venv/bin/activate && pytest
python script.py
python -m pytest -x tests/
python -m http.server 8000
python -c "import sys; print(sys.version)"
python -c "import json; print(json.load(open('package.json'))['name'])"
python3 -c 'print("rm -rf /")'
python3 - <<'EOF'$LFimport json$LFprint(json.dumps({"a": 1}))$LFEOF
python manage.py migrate
python manage.py runserver
python manage.py test
python setup.py build
pytest
pytest -q tests/test_app.py::test_one -k "delete and not drop"
pytest --cov=src --cov-report=html
tox -e py311
ruff check --fix .
black .
mypy src
flake8
isort .
uv sync
uv run pytest
poetry install
poetry run pytest
poetry publish --dry-run
pre-commit run --all-files
make
make build
make clean
make test -j4
make -C docs html
cmake -B build -S .
cmake --build build -j8
cargo build --release
cargo test
cargo clippy
cargo clean
cargo publish --dry-run
rustc main.rs
go build ./...
go test ./... -run TestX
go mod tidy
mvn clean install
mvn -q test
./gradlew build
gradle clean test
dotnet build
bundle install
bundle exec rspec
rails db:migrate
rails server
php artisan migrate
composer install
gcc -O2 -o app main.c && ./app
docker build -t app .
docker ps -a
docker images
docker run --rm -it app bash
docker run -d -p 8080:80 --name web nginx
docker run --rm -v "$PWD:/src" -w /src node:20 npm test
docker exec -it web ls /app
docker exec db psql -U postgres -c 'SELECT 1'
docker logs -f web
docker stop web
docker rm web
docker compose up -d
docker compose down
docker compose logs api
docker-compose exec web python manage.py migrate
docker inspect web
docker pull postgres:16
kubectl get pods -A
kubectl describe pod web-1
kubectl logs -f deploy/api
kubectl apply -f k8s/ --dry-run=client
kubectl rollout status deploy/api
kubectl port-forward svc/api 8080:80
helm template chart
terraform init
terraform plan
terraform fmt -recursive
terraform validate
aws s3 ls
aws sts get-caller-identity
gcloud config list
gh pr create --title x --body y
gh pr list
gh issue view 12
curl https://example.com
curl -s https://api.example.com/users | jq .
curl -sS -o page.html https://example.com
curl -H "Authorization: Bearer $TOKEN" https://api.example.com/me
curl -X POST -d '{"a":1}' http://localhost:8000/items
curl -F file=@report.pdf http://localhost:8000/upload
curl -L https://example.com/data.tar.gz | tar xz
curl -I https://example.com
curl -X DELETE --help
wget https://example.com/data.csv
wget -q -O data.json https://example.com/data.json
http GET localhost:8000/health
ping -c 3 example.com
dig example.com
nc -z localhost 5432
ssh host uptime
ssh -i ~/.ssh/id_ed25519 me@host 'ls -la /srv'
ssh me@host "systemctl status nginx"
rsync -av src/ backup/
psql -c 'SELECT * FROM users LIMIT 5'
psql -d shop -c "DELETE FROM users WHERE id = 5"
psql shop -c "UPDATE users SET name = 'drop table' WHERE id = 1"
psql shop < schema.sql
mysql -e 'SHOW TABLES'
sqlite3 app.db '.tables'
sqlite3 app.db "SELECT count(*) FROM users"
redis-cli ping
mongosh --eval 'db.users.find({})'
createdb test
ps aux | grep node
kill 12345
kill -9 12345
kill %1
kill -1 4321
kill $(lsof -t -i:3000)
pkill -f "vite --port 5173"
lsof -i :3000
top -b -n 1
systemctl status nginx
journalctl -u nginx -n 50
sudo apt-get update
crontab -l
which python
command -v node
type ls
export NODE_ENV=test
export PATH="$HOME/bin:$PATH"
VAR=1 npm test
time npm run build
timeout 60 pytest
nohup npm start > server.log 2>&1 &
npm start > /dev/null 2>&1 &
make 2>&1 | tee build.log
pytest 2>/dev/null
make > /tmp/build.log 2>&1
echo ok > /dev/null
cat a b > c
cat > script.sh <<'EOF'$LFrm -rf build$LFEOF
cat <<EOF > README.md$LF# Title$LFRun `date`.$LFEOF
bash scripts/build.sh
bash -c 'echo hi'
sh -c "npm test && npm run build"
bash -n script.sh
./scripts/deploy.sh --check
eval "$(ssh-agent -s)"
eval "$(direnv hook bash)"
source <(kubectl completion bash)
cat scripts/setup.sh | bash
xargs -n1 echo < list.txt
ls *.txt | xargs -I{} cp {} backup/
for f in *.py; do echo "$f"; done
while read -r line; do echo "$line"; done < file.txt
if [ -f package.json ]; then npm ci; fi
if [[ $x > 1 && -n "$y" ]]; then echo yes; fi
case "$1" in start) npm start;; *) echo usage;; esac
test -d build || mkdir build
[ -d dist ] && rm -rf dist
(cd frontend && npm run build)
{ echo a; echo b; } > out.txt
echo $((1 + 2))
x=$(git rev-parse HEAD); echo $x
printf '%s\n' a b c
true && false || echo done
watch -n 2 git status
tmux new-session -d -s dev 'npm run dev'
vim -c ':wq' file.txt
openssl rand -hex 16
openssl x509 -in cert.pem -noout -text
base64 image.png > image.b64
base64 -d image.b64 > image.png
echo aGVsbG8= | base64 -d
ssh-keygen -t ed25519 -f ./deploy_key -N ''
ls ~/.ssh
cat ~/.ssh/id_ed25519.pub
cat .env.example
cat .env
cp .env.example .env
dd if=/dev/zero of=test.img bs=1M count=10
dd if=/dev/urandom bs=16 count=1 | base64
truncate -s 0 logs/app.log
: > build.log
tee out.txt < in.txt
perl -pe 's/foo/bar/' file.txt
perl -i -pe 's/foo/bar/g' src/app.py
ruby -e 'puts 1 + 1'
gem install bundler
alembic upgrade head
flask run
uvicorn app:app --reload
celery -A app worker
jupyter nbconvert --to script nb.ipynb
convert in.png -resize 50% out.png
ffmpeg -i in.mp4 out.gif
shellcheck scripts/*.sh
hadolint Dockerfile
act -n
docker compose -f docker-compose.yml up --build
docker logs --tail 100 api
kubectl get all -n dev
kubectl diff -f k8s
kubectl cp pod:/x ./x
kubectl rollout history deploy/api
helm lint
helm dependency update
terraform plan -destroy
aws configure list
aws ecr get-login-password | docker login --username AWS --password-stdin x.dkr.ecr.us-east-1.amazonaws.com
gsutil ls gs://b
az webapp list
gh auth status
gh api repos/a/b/pulls
gh release view
npm run release:dry
npm run clean
npm view react version
npm config get registry
npm config set save-exact true
npm prune
npm dedupe
npx npm-check-updates -u
yarn remove lodash
yarn cache clean
yarn why react
pnpm store prune
pip cache purge
pip download x
pip wheel .
python -m pip uninstall -y foo
python setup.py develop
python setup.py sdist
python -m build --wheel
poetry add requests
poetry remove requests
poetry lock
poetry build
uv pip install x
uv add httpx
uv build
hatch build
conda create -n x python=3.11
conda activate x
conda env remove -n x
cargo install ripgrep
cargo update
cargo doc --open
go get ./...
go clean -cache
rustup update
nvm use 20
rbenv install 3.2.0
bundle update
gem list
mvn clean
mvn dependency:tree
gradle publishToMavenLocal
./gradlew test --info
sbt compile
make clean all
make distclean
cmake --build . --target clean
bazel clean
ninja clean
git clean -ndx
git stash -u
git stash branch wip
git reset -- src/app.py
git reset --keep HEAD~1
git checkout -t origin/feature
git checkout --track origin/feature
git checkout main && git pull
git checkout -b fix/123-bug main
git switch -
git rebase --abort
git rebase --onto main a b
git cherry-pick --abort
git revert --no-edit HEAD~2..HEAD
git merge --squash feature
git commit --allow-empty -m "trigger ci"
git commit --fixup HEAD
git push origin HEAD
git push origin feature:feature
git push -u origin HEAD
git fetch -p
git branch -d old
git branch --list 'feat/*'
git worktree list
git worktree remove ../wt
git submodule foreach git pull
git log --all --oneline -- src/deleted.py
git show stash@{0}
git diff --name-only HEAD | xargs ruff check
git ls-files | xargs grep -n TODO
git ls-files '*.py' | xargs sed -i 's/a/b/'
git filter-branch --help
git config --get remote.origin.url
git config core.autocrlf input
git mv a b
git rm -r --cached node_modules
find . -name "*.log" -exec rm {} \;
find . -name "*.pyc" -exec rm -f {} +
find . -name "*.tmp" | xargs rm -f
find . -type d -name node_modules -prune -exec rm -rf {} +
find . -type f -name "*.js" | xargs prettier --write
find src -type f -exec sed -i 's/foo/bar/g' {} +
find . -name '*.py' -newer x -print
find /usr/include -name stdio.h
find . -exec file {} \;
rm -rf ./node_modules ./package-lock.json
rm -rf dist build *.egg-info .eggs
rm -rf .pytest_cache .ruff_cache
rm -f .coverage coverage.xml
rm -rf ~/project/node_modules
rm -rf apps/web/.next
rm -rf android/app/build
rm -rf ios/Pods ios/build
rm -rf target/release
rm -rf tmp/*
rm -rf logs/*
rm -rf .terraform
rm file.txt file2.txt
rm -f a.o b.o
rm -f "my file.txt"
rm src/components/Old.tsx
rm -rf coverage && npm test -- --coverage
sudo apt-get clean
sudo chown $USER:$USER file
sudo cp nginx.conf ./conf/
sudo tail -f /var/log/nginx/error.log
sudo lsof -i :80
sudo docker ps
sudo -E env PATH=$PATH make
sudo journalctl -xe
cat /var/log/syslog | tail -50
cat /etc/nginx/nginx.conf
ls -la /etc
grep root /etc/passwd
cat ~/.bashrc
cat ~/.ssh/config
cat ~/.ssh/known_hosts
ls -la ~/.aws
cat ~/.gitconfig
echo 'export X=1' >> .envrc
echo "DEBUG=1" >> .env
cp .env .env.backup
mkdir -p ~/.cache/x
tar czf ../project/out.tgz src
tar -czf /tmp/backup.tgz .
tar -xzf ~/Downloads/a.tgz
tar tf ~/backup.tgz
zip -r /tmp/a.zip src
unzip ~/Downloads/a.zip -d vendor
gzip -c ~/data.csv > data.csv.gz
zcat ~/data.csv.gz | head
gcc -O2 -o build/app main.c
gcc -I ~/include -o app main.c
pandoc ~/notes.md -o notes.pdf
ffmpeg -i ~/in.mp4 out.mp4
curl -O https://example.org/a.tgz
curl -sSL --output a.tgz https://example.org/a.tgz
wget -P downloads https://example.org/a.tgz
openssl x509 -in ~/cert.pem -noout -text
openssl rand -out key.bin 32
git archive -o out.tar HEAD
git diff --output=change.patch
git format-patch -o patches HEAD~3
git push -o ci.skip
sqlite3 ~/app.db "select count(*) from t"
sqlite3 app.db "create table t(a)"
split -b 10M ~/big.bin part-
docker cp web:/app/log.txt .
strace -o trace.txt ls
find . -fprint found.txt
mv src/*.py lib/
vim -c 'w out.txt' notes.md
python3 -c "from pathlib import Path; print(Path.home())"
perl -ne 'print if $_ > 3' data.txt
cat .git/HEAD
rm -f .git/index.lock
echo build/ >> .git/info/exclude
cp a.txt /tmp/work/a.txt
tar -xzf x.tgz -C /tmp/x
unzip -o x.zip -d /tmp/x
curl -fsSL https://deb.nodesource.com/setup_20.x -o setup.sh
curl -s localhost:9200/_cat/indices
curl -X POST localhost:3000/api/users -H 'Content-Type: application/json' -d '{"name":"x"}'
curl -X PATCH http://localhost:8000/x/1 -d '{}'
curl -H "X-Api-Key: $API_KEY" https://api.example.com/v1/x
curl -sS https://example.com/robots.txt | head
curl -o /dev/null -s -w '%{http_code}\n' https://example.com
wget -r -np https://example.com/docs/
wget --spider https://example.com
http POST :8000/x name=a
nc -zv localhost 22
telnet localhost 25
openssl s_client -connect example.com:443
ssh host "tail -n 100 /var/log/app.log"
ssh -L 5432:localhost:5432 host
ssh-keyscan github.com >> known_hosts
scp host:/var/log/app.log .
psql -l
psql $DATABASE_URL -f migrations/001.sql
psql -c "ALTER TABLE users ADD COLUMN x int"
psql -c "EXPLAIN DELETE FROM users"
mysql -u root -e "CREATE DATABASE app"
mysql app < dump.sql
sqlite3 db.sqlite "INSERT INTO t VALUES('drop table x')"
sqlite3 db.sqlite .dump > out.sql
redis-cli del key
redis-cli monitor
kill -USR1 1234
kill -15 1234 5678
kill -s TERM 4242
pkill -f webpack
pgrep node | xargs kill
ps aux | awk '{print $2}' | head
time make -j8
nice -n 10 make
env FOO=1 BAR=2 node app.js
env | sort
export $(cat .env | xargs)
export $(grep -v '^#' .env | xargs)
set -o allexport; source .env; set +o allexport
source venv/bin/activate && pip install -r requirements.txt
python -c "import sys; sys.exit(0)"
python -c "print(open('README.md').read())"
python -c "import os; os.remove('tmp.txt')"
python -c "import subprocess; subprocess.check_call(['npm','test'])"
python -c "import json,sys; json.dump({}, open('x.json','w'))"
python -c "import urllib.request; print(urllib.request.urlopen('http://localhost:8000').read())"
python -c "import socket; print(socket.gethostname())"
python -c "import socket; s=socket.socket(); s.connect(('localhost',5432)); print('ok')"
python -c "for i in range(3): print(i)"
python -c "import platform; print(platform.platform())"
node -e "fetch('http://localhost:3000').then(r=>r.text()).then(console.log)"
node -e "console.log(require('./package.json').version)"
node -e "console.log(\`hi \${1+1}\`)"
node -e "require('fs').writeFileSync('out.txt', 'x')"
node -e "require('fs').unlinkSync('out.txt')"
ruby -e "puts RUBY_VERSION"
perl -ne 'print if /x/' file
perl -e 'print "hello\n"'
awk 'BEGIN{print 1}'
awk -v x=1 '{print x, $0}' f
sed -E 's/(a|b)/c/g' f
sed -n '/start/,/end/p' f
sed 's/e /x/' f
jq -r '.[] | select(.a == "rm -rf /")' f.json
yq '.x' f.yml
xmllint --format x.xml
echo "alias rm='rm -i'" > aliases.sh
alias gs='git status'
type rm
man rm
rm --help
git push --help
chmod u+x run.sh
chmod -R a+rX public
chmod g+w shared
chown -R www-data:www-data storage
ln -s /usr/bin/python3 python
stat -c %a file
watch -n1 'kubectl get pods'
crontab -e --help
ulimit -n 4096
tmux kill-session -t dev
screen -r dev
open .
say done
code --diff a b
[ "$(id -u)" -eq 0 ] && echo root
if ! command -v jq >/dev/null; then echo no; fi
for i in $(seq 1 10); do echo $i; done
for f in *.jpg; do convert "$f" "${f%.jpg}.png"; done
for d in */; do (cd "$d" && git status -s); done
while true; do date; sleep 1; done
n=0; while [ $n -lt 3 ]; do n=$((n+1)); done
trap 'echo bye' EXIT
trap 'rm -f "$tmp"' EXIT
tmp=$(mktemp) && echo hi > "$tmp" && rm -f "$tmp"
f() { echo "$1"; }; f x
echo "a;b|c&d>e<f(g)h"
echo '$(rm -rf /)'
echo \$HOME
echo "it's"
printf '%s\n' "rm -rf /"
test $((1>0)) -eq 1
(( i++ ))
let x=1+2
[[ $a =~ ^[0-9]+$ ]] && echo num
diff <(git show HEAD:a) a
sort < in > out
cmd 2>&1 | tee log
ls >/dev/null 2>&1; echo $?
exec > >(tee log) 2>&1
coproc cat
time (sleep 1)
./run -r src
./manage.py test
./gradlew -r build
EDITOR=vim git commit --amend
GIT_SSH_COMMAND='ssh -i key' git fetch
PAGER=less man ls
kill $(awk '{print $1}' app.pid)
export VERSION=$(python -c "import tomllib; print(tomllib.load(open('pyproject.toml','rb'))['project']['version'])")
node -p "require('./package.json').name" | tee name.txt
export PATH="$HOME/.cargo/bin:$PATH"; cargo build
PATH="$PWD/bin:$PATH" make test
terraform output -json
PY=${PYTHON:-python3}; $PY -m pytest
curl -sLo build/tool.tgz https://files.example/tool.tgz
wget -qO data.csv https://files.example/data.csv
ssh host ls -R
ssh-keygen -lf ~/.ssh/id_ed25519.pub
git clone -b main https://github.com/o/r vendor/r
git worktree add -b fix ../fix main
npm --prefix frontend install
npm --prefix ../shared run build
awk '$3 > "b" {print $1}' data.txt
awk '{print > $1".txt"}' data.txt
sed 's/now/ w then/' notes.txt
[[ $name == '[draft]' ]] && echo draft
printf '%s\n' '[$(date)]'
parallel gzip -k ::: a.txt b.txt
cmake -E make_directory build/out
psql -c 'select 1'
cat .github/workflows/auth.yml
curl -H "Authorization: Bearer $API_TOKEN" https://api.example/me
screen -ls
sudo -v
sudo -n true
sudo -l
sudo ls -la /root
sudo cat /var/log/syslog | tail -50
sudo dmesg | tail
sudo ss -ltnp
sudo docker compose up -d
sudo sh -c 'tail -5 /var/log/syslog'
sudo timeout 5 journalctl -f
alias sudo='sudo '
alias ll='ls -la'
alias py=python3
alias k=kubectl; k get pods
mv /tmp/build.tgz /tmp/old.tgz
mv ../data/sample.csv data/
gio trash --list
trash-list
rpm -qi bash
rpm -qa | grep ssl
dpkg -L bash
dpkg -S /bin/ls
pacman -Qi bash
go run .
go run golang.org/x/tools/cmd/stringer@latest -type=Kind
go install golang.org/x/tools/gopls@latest
npm install --prefix packages/web
npm i -w packages/web lodash
npm install @types/node
cargo --version
cargo yank --help
aws ec2 describe-instances
aws logs create-log-group --log-group-name g
aws dynamodb create-table --table-name t --endpoint-url http://localhost:8000
gcloud config configurations create work
gcloud beta emulators firestore start
az account list
pulumi preview
cdk diff
vercel dev
wrangler dev
fly status
heroku logs --tail
deno task release
systemd-run --user --scope make
systemctl list-timers
atq
at -l
gdb ./build/app core
gdb -p 4321 -batch -ex 'thread apply all bt'
strace -p 4321
strace -e trace=openat ls
pgrep -fl node
kill $(pgrep -f 'vite --port')
renice -n 10 -p 4321
python3 -c 'import os; os.remove("build/x.o")'
python3 -c 'import os; os.remove("/tmp/x.json")'
python3 -c 'x = ["/a", "b"]; x.remove("/a"); print(x)'
python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'
node -e 'require("fs").unlinkSync("dist/a.js")'
php -r 'unlink("cache/x");'
ruby -e 'puts File.read("x")'
fd -e pyc -x rm
python3 -c 'import json, urllib.request as u; print(json.load(u.urlopen("https://api.example/x")))'
python3 -c 'import re, requests; print(re.compile("a").findall(requests.get("https://x.example").text))'
fd -e py . src -x black
arecord -l
arecord --list-pcms
sox in.wav -r 16000 out.wav
sox in.wav -d
ffmpeg -f concat -safe 0 -i list.txt -c copy out.mp4
ffmpeg -f lavfi -i testsrc -t 1 test.mp4
ffmpeg -i in.wav -f alsa default
ffmpeg -f image2 -i frame%03d.png out.mp4
gst-launch-1.0 filesrc location=a.ogg ! decodebin ! fakesink
echo done | xclip -selection clipboard
xclip -sel clip < notes.txt
git diff | xsel -ib
git rev-parse HEAD | wl-copy
cat notes.txt | pbcopy
xinput list
v4l2-ctl --list-devices
tcpdump -nn -r trace.pcap
tshark -r trace.pcap -T json
tcpdump -D
strace -c ./build/app
strace -f -e trace=read,write ./build/app
strace -p 4321 -c
ltrace ./build/app
perf record -g ./build/app
bpftrace -l
fallocate -l 100M test.img
dd if=/dev/zero of=test.img bs=1M count=512
head -c 1M /dev/urandom > sample.bin
head -c 32 /dev/urandom | base64
yes | sdkmanager --licenses
yes > /dev/null
cat /dev/null > build.log
while true; do npm test; sleep 5; done
while :; do ./server & wait; done
for i in 1 2 3; do ./worker $i & done; wait
fwupdmgr get-devices
bootctl status
nvme list
rtcwake -m show
loginctl list-sessions
loginctl show-user me
getfacl src
setfacl -m u:app:r config/app.yaml
xattr -l app.zip
lsof -ti :5173 | xargs kill
ip route get 1.1.1.1
ip -br link
ip route show default
ip rule list
nft list ruleset
iptables -L -n
sudo iptables -S
sudo ufw status verbose
firewall-cmd --list-all
nmcli device wifi list
nmcli connection show
resolvectl status
resolvectl query example.org
resolvectl dns
ifconfig eth0
route -n
arp -a
nmap localhost
nmap -p 5432 127.0.0.1
nmap -p 443 example.org
nmap --version
nc -zv db.example 5432
ping -c 3 example.org
ngrok version
cloudflared tunnel list
cloudflared --version
tailscale status
code .
code --diff a.txt b.txt
script -c 'npm test' test.log
script -q test.log
setsid ./server > server.log 2>&1 &
unbuffer npm test | tee test.log
expect -c 'spawn ./installer; expect "name"; send "x\r"; expect eof'
clickhouse-client -q 'SELECT count() FROM logs'
clickhouse-client -q 'ALTER TABLE logs ADD COLUMN x UInt8'
psql -c 'alter table a add constraint f foreign key (b) references c on delete cascade'
cqlsh -e 'DESCRIBE KEYSPACES'
duckdb shop.db 'select * from orders'
bq query --use_legacy_sql=false 'SELECT 1'
bq ls shop
snowsql -q 'show tables'
influx bucket list
aws s3 cp dist/a.js s3://b/ --acl private
aws s3 ls s3://public-data/
gsutil acl get gs://b
az storage container list
kubectl scale --help
kubectl patch deploy web -p '{}' --dry-run=client
kubectl get hpa
snap list
rsync -a --delete build/ public/
rsync -a --delete dist/ www/
kubectl -n patch get pods
python3 -c 'import cv2; print(cv2.VideoCapture("in.mp4").read())'
python3 -c 'import pyperclip; pyperclip.copy("x")'
kubectl logs patch-job-1
yes | head -n 1000 > lines.txt
yes | npx create-app > setup.log
pgrep -f worker | while read p; do kill $p; done
pgrep node | while read p; do ps -o args= -p "$p"; done
osascript -e 'set the clipboard to "x"'
ssh -L 5432:localhost:5432 db.example
ssh -o ConnectTimeout=5 host.example uptime
tail -n 5 /dev/null
head -c 100 /dev/zero | xxd
while read l; do echo $l & done < a.txt
for ((i=0;i<3;i++)); do ./run $i & done
until curl -sf localhost:8000; do sleep 1; done
ip netns list
netplan get
systemctl status sleep.target
ssh prod-web uptime
ssh web1 'sudo tail -n 50 /var/log/syslog'
ansible all -m ping
ansible web -a uptime
ansible-playbook site.yml --check
ansible-playbook -i localhost, -c local setup.yml
kubectl --context prod get pods
kubectl --context prod logs deploy/api
helm list --kube-context prod
helm upgrade --install api ./chart -n dev
wrk -c 10 http://localhost:3000
ab -n 10 http://127.0.0.1:8000/
curl https://slack.com/api/api.test
gcloud config set project demo
az account set -s dev
aws iam list-attached-user-policies --user-name me
gcloud projects get-iam-policy demo
julia -e 'println(1)'
elixir -e 'IO.puts(1)'
scala -e 'println(1)'
nvram -p
pmset -g
skopeo inspect docker://alpine
osascript -e 'display dialog "x"'
goose status
migrate -version
atlas schema inspect -u sqlite://dev.db
python3 -c "import requests; print(requests.post('http://localhost:8000/up', files={'f': open('a','rb')}).text)"
python3 -c "from pathlib import Path; print((Path.home() / '.config' / 'app.toml').exists())"
printenv | grep -i proxy
pwsh -c 'Get-ChildItem | Select-Object Name'
make -f - <<'X'$LFall:$LF	@echo $(HOME)$LFX
cat - <<'X'$LFhello$LFX
openssl s_client -connect example.com:443 </dev/null 2>/dev/null | openssl x509 -noout -dates
vault status
nomad status
gh pr view 5
sass reset.scss out.css
protoc --plugin=protoc-gen-go --go_out=. delete.proto
conda env create -f environment.yml -p ./env
pylint --disable=all --enable=unused-import src
python3 -c "import subprocess; print(subprocess.check_output(['git','rev-parse','HEAD']).decode())"
python3 -c "import shutil, inspect; print(inspect.signature(shutil.rmtree))"
sed -i -e 's/http:/https:/' -e '/^$/d' docs/links.txt
mkfs.ext4 --help 2>&1 | head -5
kubectl auth can-i delete pods
aws ec2 terminate-instances help | head -40
mix test --trace
mix deps.get
mix format --check-formatted
gem list --local
cargo clippy --all-targets -- -D warnings
cargo nextest run -p core
cargo tree -d
dotnet test --no-build
dotnet build -c Release
helm template ./chart -f values.yaml
helm lint chart
stack test
cabal build all
opam list
flutter analyze
dart format lib
npm view react versions --json
yarn why lodash
pnpm -r build
deno test -A
bun test
mvn -q -DskipTests package
./gradlew :app:assembleDebug
sbt "testOnly *FooSpec"
lein test
psql -h localhost -U app -c 'SELECT count(*) FROM users'
psql -U postgres -d app_test -f schema.sql
mysql -h 127.0.0.1 -e 'show tables' app
redis-cli -h localhost get foo
sqlite3 dev.db '.schema'
sqlite3 test.db "insert into t values (1)"
mongosh --quiet --eval 'db.stats()'
nc -zv localhost 5432
nc -z db.acme.io 5432
openssl s_client -connect example.com:443 </dev/null
crane manifest alpine:3.19
skopeo inspect docker://docker.io/library/alpine
rename 's/\.jpeg$/.jpg/' assets/*.jpeg
exiftool -s photo.jpg
jpegoptim -m80 public/img/*.jpg
sed -n '1,40p' /etc/nginx/nginx.conf
perl -pi -e 's/\r$//' scripts/*.sh
for f in src/*.ts; do wc -l "$f"; done
for d in packages/*; do (cd $d && npm test); done
while read -r l; do echo "${l%%,*}"; done < data.csv
python3 -c "import sys; print(sys.version)"
python3 -c "import json;print(json.load(open('package.json'))['version'])"
python3 -c "open('out.txt','w').write('x')"
python3 -c "import os; print(os.environ.get('PATH'))"
python3 -c "import urllib.request; print(urllib.request.urlopen('http://localhost:8000/health').status)"
python -c "import requests; print(requests.get('https://pypi.org/pypi/httpx/json').json()['info']['version'])"
node -p "process.versions"
node -e "const fs=require('fs');fs.writeFileSync('dist/v.txt', 'x')"
ruby -e 'puts RUBY_VERSION'
php -r 'echo PHP_VERSION;'
perl -ne 'print if /ERROR/' app.log
lua -e "print(1+1)"
fab --list
fab test
git lfs ls-files
git lfs pull
git diff --stat HEAD~3
git worktree add ../feature feature
git commit -am 'Fix parser'
git blame -L 10,30 src/app.py
git config user.email
git bisect start HEAD v1.0
docker build -t app:dev .
docker logs -f --tail 50 app
docker exec -it app bash -c 'ls /app'
docker run --rm -v $PWD:/w -w /w node:20 npm test
podman ps -a
kubectl get pods -n staging -o wide
kubectl describe deploy/api
kubectl logs deploy/api --since=1h
terraform plan -out tf.plan
cdk synth
aws s3 ls s3://bucket/
az account show
gh pr list --state open
gh run view 123 --log-failed
curl -s https://api.github.com/repos/psf/requests | jq .stargazers_count
curl -X POST localhost:3000/api/items -d '{"a":1}'
wget -qO- https://example.com/robots.txt | head
ss -ltnp
du -sh node_modules
df -h /
find /usr/include -name 'zlib.h'
grep -rn TODO src | sort | uniq -c
awk -F, '{s+=$3} END {print s}' data.csv
jq '.dependencies | keys' package.json
yq e '.services' docker-compose.yml
tar xzf vendor.tgz -C build
unzip -l app.zip
ffmpeg -i in.mov -vf scale=640:-1 out.mp4
convert logo.png -resize 50% logo-small.png
pandoc README.md -o readme.pdf
make -j8 && ctest --output-on-failure
cmake -S . -B build -G Ninja
valgrind --leak-check=full ./build/app
gdb -batch -ex bt ./a.out core
strace -f -o trace.log ./a.out
hyperfine './a.out' './b.out'
ab -n 100 http://localhost:8080/
watch -n1 date
tmux new -d -s dev 'npm run dev'
chmod +x scripts/*.sh
ln -s ../shared/config.json config.json
mkdir -p /tmp/x && cp -r src /tmp/x
touch src/__init__.py
mv src/old.py src/new.py
rm -rf build dist *.egg-info
python manage.py makemigrations
phpunit --filter Foo
go test ./... -race
zig build test
swift test
xcodebuild -scheme App test
nix build .#default
bazel test //...
buck2 build //app:app
just lint
task test
nox -s tests
poetry add httpx
uv pip install -e .
pip download requests -d wheels
rustup show
rustc --explain E0382
ghc --version
nimble test
elm make src/Main.elm
rebar3 ct
buf lint
hexo generate
ng build --configuration production
docusaurus build
conan install . --build=missing
pdm install
nx run-many -t test
lerna run build
scala-cli test .
mill __.test
swift package resolve
hugo server -D
earthly +test
docker buildx build -t acme/app --load .
dagger functions
mysql -h db -u root -proot shop < schema.sql
psql -h postgres -U app -f db/seed.sql
psql postgres://app:app@localhost:5432/shop -c "INSERT INTO t VALUES (1)"
psql -h db.acme.io -U ro -c "SELECT id, created_at FROM orders LIMIT 5"
mongosh mongodb://localhost/shop --eval "db.users.deleteOne({a:1})"
pg_restore -h localhost -d shop_dev shop.dump
redis-cli -h cache.acme.io GET feature:x
redis-cli -u redis://localhost:6379 SET a 1
clickhouse-client --query "SELECT 1"
printf 'GET / HTTP/1.0\r\n\r\n' | nc example.com 80
echo stats | nc localhost 11211
echo ruok | nc zk1.acme.io 2181
websocat ws://localhost:3000 <<< '{"a":1}'
dos2unix scripts/*.sh
black src tests
prettier --write "src/**/*.ts"
eslint --fix src
gofmt -w ./cmd
gofmt -l ~/go/src/acme
black --check ~/other
chmod 755 bin/run
git -C ../sibling log -3
git -C vendor/lib checkout v2
cd packages/api && git add . && git commit -m 'Add api'
cd ../other && git status
cd ~/other && grep -rn foo src
python3 -c "import pathlib; print(pathlib.Path.home())"
python3 -c "import os; print(os.path.expanduser('~'))"
python3 -c "import urllib.request as u; print(u.urlopen('https://example.com', timeout=5).status)"
python3 -c "import requests; open('out.json','w').write(requests.get('https://api.github.com').text)"
python3 -c "import requests; print(requests.post('http://localhost:8000/api', json={'a':1}).json())"
node -e "fetch('https://example.com').then(r=>r.text()).then(console.log)"
node -e "fetch('http://localhost:3000/api',{method:'POST',body:'{}'}).then(r=>console.log(r.status))"
python3 -c "import socket; print(socket.gethostbyname('example.com'))"
python3 -c "print(open('README.md').read()[:200])"
openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 30 -subj /CN=localhost
git lfs track '*.psd'
lefthook run pre-commit
xdg-mime query default text/html
grpcurl -plaintext localhost:50051 list
grpcurl -plaintext -d '{"id":1}' localhost:50051 users.Users/Get
claude --version
make deploy-local
mkdocs serve
mkdocs build --strict
quarto render report.qmd
mix phx.server
lein run
sbt publishLocal
./gradlew publishToMavenLocal
mvn install -DskipTests
fuser 3000/tcp
find . -name '*.key'
find src -name '.env*'
find ~/.cache -name '*.whl'
exiftool ~/Pictures/a.jpg
identify ~/Pictures/a.png
wc -l ../other/src/*.py
diff -r . ../other
cp ../other/config.json .
ls ~/projects
crane ls alpine
skopeo copy docker://alpine:3 oci:alpine
oras pull ghcr.io/acme/app:1
cosign verify --key k.pub acme/app
k6 run load/smoke.js
echo "GET http://localhost:8080" | vegeta attack -duration=5s | vegeta report
sort data.csv -o sorted.csv
mysqldump -h localhost shop > backup.sql
pg_dump shop_dev > dump.sql
docker exec db psql -U app -c "SELECT 1"
docker compose exec db mysql -uroot -proot shop -e 'show tables'
find . -name '*.ts' -exec grep -l foo {} +
fd -e py -x black --check
rsync -a src/ build/
tar czf /tmp/src.tgz src
unzip -o plugin.zip -d vendor/plugin
curl -fsSL https://example.com/data.json -o data.json
git push origin feature
git branch -d merged
git stash push -m wip
gh pr create --fill
gh pr diff 12
gh api repos/acme/app/pulls
http :8000/health
RAILS_ENV=test rails db:migrate
RAILS_ENV=test bundle exec rspec
DATABASE_URL=postgres://localhost/x alembic upgrade head
wp plugin list
celery -A app inspect active
aws ec2 describe-instances --region us-east-1
gcloud projects list
helm list -A
ssh-keygen -t ed25519 -f /tmp/k -N ''
passwd --help
sysctl -a | grep swap
ip addr show
ifconfig
hostname
ufw status
journalctl -u nginx --since today
apt list --installed
brew list
conda env list
nix flake check
jest --watch=false src/a.test.ts
vitest run --coverage
playwright test --ui
cypress run --spec cypress/e2e/a.cy.ts
storybook build
tsc --noEmit
esbuild src/i.ts --bundle --outfile=dist/i.js
vite build
webpack --mode production
rollup -c
swc src -d dist
mypy --strict src
pyright
pytest -x -k 'not slow'
coverage run -m pytest && coverage html
hypothesis write numpy.sort
python -m venv .venv && . .venv/bin/activate && pip install -U pip
python -m build
flask --app app run --debug
gunicorn -w 4 app:app
jupyter nbconvert --to html a.ipynb
dvc repro
mlflow ui
go vet ./...
go build -o bin/app ./cmd/app
golangci-lint run
cargo test -- --nocapture
cargo fmt --check
rustup component add clippy
clang-format -i src/*.cpp
ninja -C build
meson test -C build
gradle build -x test
kotlinc Main.kt -include-runtime -d main.jar
javac -d out src/Main.java && java -cp out Main
dotnet run --project App
dotnet ef migrations add Init
nuget restore
composer dump-autoload
bundle install --path vendor/bundle
rubocop -A
elixir script.exs
iex -S mix
ghci Main.hs
julia --project -e 'using Pkg; Pkg.test()'
Rscript -e 'devtools::test()'
latexmk -pdf paper.tex
dot -Tpng g.dot -o g.png
mmdc -i a.mmd -o a.svg
protoc --go_out=. api.proto
buf generate
openapi-generator-cli generate -i api.yaml -g python
graphql-codegen
sqlc generate
act -j test
pre-commit autoupdate
npx tsc --init
bunx vite
pnpm dlx create-vite my-app
yarn workspace api test
pyenv local 3.12
asdf install
NODE_ENV=production npm run build
NODE_ENV=production npx webpack
NODE_ENV=production node dist/server.js
NODE_ENV=production npm start
npm ci --production
npm prune --production
MIX_ENV=prod mix release
MIX_ENV=prod mix compile
RAILS_ENV=production rails assets:precompile
DATABASE_URL=postgres://localhost/x npm run migrate
DATABASE_URL=sqlite:///test.db alembic upgrade head
docker compose -f docker-compose.prod.yml config
docker run --rm ubuntu bash -c 'apt-get update && apt-get install -y jq'
docker exec app apk add curl
grep -rn production src
cat config/production.rb
vim -c q config/production.yml
diff config/dev.yml config/production.yml
npm run build:prod
make build ENV=prod
yarn build --mode production
python -m pytest -k production
git checkout feature/x
git push origin fix/production-bug
git push -u origin feature/live-preview
git log origin/production
git diff production..main
ssh dev 'cd app && make test'
kubectl --context kind-dev apply -f k8s/
kubectl apply -f k8s/ --context minikube
kubectl -n dev rollout restart deploy/api
kubectl get pods -n prod
kubectl exec deploy/api -- ls /app
helm upgrade --install api ./chart --kube-context kind-test
aws s3 cp s3://bucket/x .
aws s3 sync dist/ s3://site
scp host:/var/log/x .
apt-cache search jq
npm install -D typescript
make install
make install PREFIX=./out
make install DESTDIR=/tmp/pkg
cmake --install build --prefix ./out
curl -X POST localhost:3000/x -d '{}'
BASE=http://localhost:3000; curl -X POST "$BASE/api" -d '{}'
curl "$API_URL/health"
env | grep NODE
find . -name '*.py' | while read f; do wc -l "$f"; done
find . -name '*.orig' | while read f; do rm "$f"; done
while read line; do echo "$line"; done < list.txt
echo x > "$(git rev-parse --show-toplevel)/out.txt"
cp a "$(dirname "$f")/b"
tmp=$(mktemp -d); echo x > "$tmp/y"
echo '{}' > .vscode/settings.json
node scripts/build.js --env production
terraform plan -var-file=prod.tfvars
swift build
swift package update
cargo run --release
rails s -e development
export NODE_ENV=production
k6 run --vus 10 load.js
direnv status
git apply --check -R x.patch
export ENV=prod; echo $ENV
CI=true npm test
python scripts/check_config.py config/production.yml
gh workflow list
echo "token: $GITHUB_TOKEN" | wc -c
echo ${API_KEY:+set}
echo "${#API_KEY}"
X=$(echo $API_KEY)
ssh vagrant@localhost uptime
rails credentials:help
systemctl --user restart app
patch -p1 < x.patch
VITE_API_URL=https://api.acme.com npm run build
API_URL=https://api.acme.com npm test
npm run db:reset:test
make reset
node scripts/list-users.js
pg_dump -h localhost app > x.sql
make -f build.mk all
php -S localhost:8000 -t public
age -r age1x -o notes.age notes.txt
history | tail
aws s3 sync --delete --dryrun dist/ s3://site
bash -n scripts/deploy.sh
cat scripts/deploy.sh
shellcheck scripts/teardown.sh
pytest tests/test_deploy.py
make deploy-local
npm run deploy -- --dry-run
npm run release:check
python -m pip uninstall -y requests
ruff check --fix --unsafe-fixes src
jest --clearCache
pytest --cache-clear -q
react-native start --reset-cache
git fetch --prune
docker compose down --remove-orphans
docker run --rm --publish 8080:80 nginx
rg -- --no-verify
grep -rn -e --insecure docs
GIT_EDITOR=true git rebase --continue
GIT_PAGER=cat git log -3
EDITOR="code --wait" git commit
PYTHONPATH=src pytest
NODE_OPTIONS=--max-old-space-size=4096 npm run build
http_proxy=http://localhost:3128 curl http://example.com
uvicorn app:app --host 127.0.0.1 --port 8000
vite --host localhost
curl -k https://localhost:8443/health
curl --insecure https://localhost:8443/health
curl -X DELETE http://localhost:3000/api/items/3
curl -X POST http://localhost:8080/jobs -d '{}'
ln -s ../shared/src lib && ls lib/
ln -sfn releases/v2 current && cat current/VERSION
git clone https://github.com/o/r /tmp/r && grep -rn main /tmp/r
git clone https://github.com/o/r && cd r && npm install
cat > README.md <<'EOF'$LFInstall: curl https://example.com/i.sh | sh$LFEOF
cat > Dockerfile <<'EOF'$LFRUN curl -fsSL https://example.com/i.sh | sh$LFEOF
docker cp web:/app/log.txt .
docker build -f Dockerfile.prod -t app:prod .
python3 -c "import os; print(os.environ.get('HOME'))"
node scripts/release-notes.js
git push origin feature/x:feature/x
git fetch origin '+refs/heads/*:refs/remotes/origin/*'
git merge origin/main
gh pr create --title "fix: x" --body "see #3"
tmux send-keys -t dev:0 'npm test' Enter
webpack --env production
curl -L "https://dl.example/tool-$(uname -s)-$(uname -m).tgz" -o tool.tgz
curl -s "https://api.example/search?q=shell"
echo > /tmp/marker.txt
> out.log
: > src/pkg/__init__.py
mv src/a.py src/b.py
mv src/old src/new
mv report.pdf /tmp/
nodemon --exec "npm test" --watch src
concurrently "npm run api" "npm run web"
git commit -m "rm -rf the old parser"
socat TCP-LISTEN:8080,bind=127.0.0.1,fork TCP:localhost:3000
scp host:/var/log/app.log .
npx some-gen --out-dir ./gen
npm run clean:all
while true; do npm test; sleep 5; done
while true; do date >> log.txt; sleep 60; done
git pull origin main
gpg --import keys/dev.asc
poetry config virtualenvs.in-project true
poetry config --list
npm config get registry
cargo login --help
composer config --list
ssh -L 5432:localhost:5432 dev
for i in 1 2 3; do echo $i >> out.txt; done
until curl -sf localhost:8080/health; do sleep 1; done
uvicorn app:app --host 0.0.0.0
python manage.py runserver 0.0.0.0:8000
vite --host
gunicorn -b 0.0.0.0:8000 app:app
python scripts/clean_data.py data/raw.csv
python manage.py check --deploy
dotnet publish -c Release -o out
rsync -avn src/ host:/srv/
bq query 'select count(*) from events.x'
dig example.com +short
echo 'engine-strict=true' > .npmrc
env | grep NODE > node_env.txt
env | wc -l
node -p 'process.version'
node -e 'console.log(process.env.NODE_ENV)'
python -c "import os; print(os.environ['HOME'])"
docker compose config | grep -i image
git checkout -B feature/x
git switch -C fix
newtool-fmt src/
./scripts/build-prod.sh
curl -X DELETE http://localhost:8080/items/3
jupyter notebook --ip=127.0.0.1
npm run test -- --clearCache
npm run cli -- users:list
docker compose -f docker-compose.prod.yml config
docker compose -f docker-compose.dev.yml up -d
yarn dlx create-next-app
npm view react
vim -c '10' src/main.py
python -m zipfile -l x.zip
ssh -L 5432:localhost:5432 dev
gh issue create --help
psql -c 'select * from users limit 5'
psql "postgres://localhost/dev" -c 'select * from users'
busctl --user list
while true; do touch ping; sleep 5; done
docker build -f docker/Dockerfile .
composer require --dev phpunit/phpunit
julia -e 'using Pkg; Pkg.instantiate()'
getent hosts localhost
"""


def ordinary() -> list[str]:
    """Every command; `$LF` stands for a line break."""
    return [line.replace("$LF", "\n") for line in _COMMANDS.strip("\n").split("\n")]
