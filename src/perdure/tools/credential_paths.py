"""Paths of credential files: one list for shell commands, file reads and file searches."""

from __future__ import annotations

import re

# Files below a home folder, matched at the end of any path.
_HOME_FILES = (
    ".netrc",
    ".pgpass",
    ".my.cnf",
    ".mylogin.cnf",
    ".git-credentials",
    ".npmrc",
    ".pypirc",
    ".vault-token",
    ".s3cfg",
    ".boto",
    ".aws/credentials",
    ".kube/config",
    ".docker/config.json",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".m2/settings.xml",
    ".m2/settings-security.xml",
    ".composer/auth.json",
    ".claude/.credentials.json",
    ".codex/auth.json",
    ".gemini/oauth_creds.json",
    ".fly/config.yml",
    ".terraform.d/credentials.tfrc.json",
    ".config/gh/hosts.yml",
    ".config/glab-cli/config.yml",
    ".config/hub",
    ".config/git/credentials",
    ".config/rclone/rclone.conf",
    ".rclone.conf",
    ".config/op/config",
    ".config/sops/age/keys.txt",
    ".config/ngrok/ngrok.yml",
    ".ngrok2/ngrok.yml",
    ".kaggle/kaggle.json",
    ".databrickscfg",
    # Commands that were typed, often with passwords.
    ".bash_history",
    ".zsh_history",
    ".local/share/fish/fish_history",
    ".psql_history",
    ".mysql_history",
    ".rediscli_history",
    ".python_history",
    ".node_repl_history",
    ".oci/config",
    ".cache/huggingface/token",
    ".pulumi/credentials.json",
    ".gradle/gradle.properties",
    ".config/doctl/config.yaml",
    ".config/hcloud/cli.toml",
    ".config/composer/auth.json",
    ".config/containers/auth.json",
    ".config/github-copilot/hosts.json",
    ".config/github-copilot/apps.json",
    ".local/share/opencode/auth.json",
    ".local/share/com.vercel.cli/auth.json",
)
# Folders below a home folder in which every file is a credential.
_HOME_FOLDERS = (
    ".gnupg",
    ".password-store",
    ".azure",
    ".aws/sso",
    ".aws/cli/cache",
    ".config/gcloud",
    ".local/share/keyrings",
    "Library/Keychains",
    # Messages, mail and what was browsed.
    "Library/Messages",
    "Library/Mail",
    "Library/Cookies",
    "Library/Safari",
    ".thunderbird",
)
_SSH = r"/\.ssh/(?!(?:config|known_hosts|authorized_keys|environment|rc)[^/]*\Z|config\.d/|.*\.pub\Z)."
# Files named after a credential, in a folder of a program below a home folder.
_BY_NAME = (
    r"/(?:\.config|\.cache|\.local/share|Library/Application Support)/[^/]+/(?:[^/]+/){0,2}"
    r"(?:[\w.-]*[._-])?(?:credentials?|tokens?|secrets?|oauth_creds|auth|api[_-]?keys?)(?:\.(?:json|ya?ml|toml|txt|ini|db))?\Z"
    r"|/\.(?!git/|github/|gitlab/|vscode/|idea/|venv/|next/|circleci/|storybook/|devcontainer/|cache/|config/|local/)[\w-]+/"
    r"(?:credentials?|tokens?|oauth_creds|auth|access_?tokens?)(?:\.(?:json|ya?ml|toml|txt|ini|db))?\Z"
)
_ELSEWHERE = (
    r"/\.ssh/?\Z|/\.aws\Z|/\.aws/\*\Z|/etc/g?shadow-?\Z|/etc/sudoers|/etc/ssl/private|/etc/kubernetes/admin\.conf"
    r"|/(?:var/)?run/secrets|/proc/[^/]+/environ\Z|/\.terraform\.d/credentials|(?:^|/)rclone\.conf\Z"
    r"|(?:^|/)perdure-keys\.json\Z|/ssh_host_\w{1,20}_key\Z"
    r"|/\.env\.(?:prod|production|live)[\w.-]{0,20}\Z|/config/master\.key\Z"
    r"|/Login Data\Z|/logins\.json\Z|/key4\.db\Z|/[Cc]ookies(?:\.sqlite|\.binarycookies)?\Z|\.kdbx\Z|/wallet\.dat\Z"
)
# Searched in an absolute path with forward slashes.
CREDENTIAL_PATTERN = re.compile(
    rf"/(?:{'|'.join(map(re.escape, _HOME_FILES))})\Z|/(?:{'|'.join(map(re.escape, _HOME_FOLDERS))})(?:/|\Z)"
    rf"|{_SSH}|{_ELSEWHERE}|{_BY_NAME}"
)
# What a shell pattern such as `/etc/sh?dow` may expand to; `~` is the home folder.
CREDENTIAL_SAMPLES = (
    "/etc/shadow",
    "/etc/ssh/ssh_host_ed25519_key",
    "/etc/gshadow",
    "/etc/sudoers",
    "~/.ssh/id_rsa",
    "~/.ssh/id_ed25519",
    "~/.perdure/perdure-keys.json",
    *(f"~/{name}" for name in _HOME_FILES),
)
