"""Rules for packages from unusual sources, and for settings that make programs load other code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile

from perdure.tools.shell_safety.invocation import Invocation
from perdure.tools.shell_safety.rules.rule import RiskRule, is_help
from perdure.tools.shell_safety.rules.sending import LOCAL_URL
from perdure.tools.shell_safety.types import Danger, has_taint, word_list, word_set

_USUAL = re.compile(
    r"(?:https?://)?(?:[\w-]+\.)*(?:pypi\.org|pythonhosted\.org|pytorch\.org|npmjs\.org|npmjs\.com|yarnpkg\.com|rubygems\.org"
    r"|crates\.io|golang\.org|goproxy\.io|jsr\.io|nuget\.org|anaconda\.org|maven\.apache\.org)(?:[/,:]|\Z)"
)
_INDEX_OPTIONS = word_list(
    "-i --index-url --extra-index-url --index --default-index -f --find-links --trusted-host --registry --source "
    "--clear-sources --index-strategy --repository --channel-url"
)
_INDEX_SETTING = re.compile(
    r"index-url|trusted-host|find-links|registry|npmRegistryServer|script-shell|prefix|node-options|init-module|globalconfig|cafile|_auth|mirror|proxy\Z",
    re.I,
)
_REMOTE_PACKAGE = re.compile(r"(?:git|hg|svn|bzr)\+\w+://|https?://|git://|(?:github|gitlab|bitbucket):", re.I)


def _is_unusual(value: str) -> bool:
    return not (_USUAL.match(value) or LOCAL_URL.match(value) or value.startswith((".", "dist", "wheels")))


_INSTALLS = word_set("install i add download run exec dlx x ci update upgrade sync pip tool create fetch wheel compile")
_RUNNERS = word_set("npx bunx uvx")


def _uses_other_index(run: Invocation) -> bool:
    installs = run.name in _RUNNERS or any(o in _INSTALLS for o in run.operands[:2])
    # A file of conda's own; for pip, a page of links.
    options = [o for o in _INDEX_OPTIONS if o != "-f" or run.name not in ("conda", "mamba")]
    if run.name == "gem" and run.operands[:1] in (("sources",), ("source",)):
        return any(_is_unusual(v) for v in run.all_values_of("-a", "--add"))
    if run.name in _RUNNERS:
        # The options after the package are its own.
        pairs = zip(("", *run.args), run.args, strict=False)
        own = takewhile(lambda pair: pair[1].startswith("-") or pair[0] in _INDEX_OPTIONS, pairs)
        run = replace(run, args=tuple(arg for _, arg in own))
    values = [v for v in run.all_values_of(*options) if v and not v.startswith("-")]
    return installs and not is_help(run) and any(_is_unusual(v) and re.search(r"[./:]", v) for v in values)


def _installs_from_url(run: Invocation) -> bool:
    """Match packages given by a URL; for programs that run one, only the first argument is a package."""
    packages = run.operands[:1]
    if run.name not in _RUNNERS:
        at = next((i for i, o in enumerate(run.operands[:2]) if o in _INSTALLS), None)
        packages = run.operands[at + 1 :] if at is not None else ()
        packages = packages[:1] if run.operands[:1] in (("run",), ("exec",), ("dlx",)) else packages
    named = (
        re.sub(r"^[\w.\[\],-]+\s*@\s*(?=\w+[+:])", "", p) for p in (*packages, *run.all_values_of("--from", "--spec"))
    )
    return any(_REMOTE_PACKAGE.match(p) and _is_unusual(p) for p in named)


def _changes_source(run: Invocation) -> bool:
    words = run.operands
    is_setting = words[:1] in (("config",), ("set",), ("c",), ("source",))
    if is_setting and any(re.match(r"https?://", w) and _is_unusual(w) for w in (*words, *run.args)):
        return True
    return (
        words[:2] == ("config", "set")
        and any(_INDEX_SETTING.search(w) for w in words[2:3])
        and any(_is_unusual(w) for w in words[3:] or (words[2].partition("=")[2],))
    )


# A package in a file, as against one of the configured index.
_PACKAGE_FILE = re.compile(r"(?:\.{0,2}/|~).|.*\.(?:deb|rpm|apk|snap|pkg|flatpak(?:ref)?|pkg\.tar\.\w+)\Z", re.I)
_GITHUB_NAME = re.compile(r"(?![.@~/])[\w.-]{1,100}/[\w.-]{1,100}(?:#\S{1,100})?\Z")


def _installs_file(run: Invocation) -> bool:
    """Match system packages that are installed from a file, whose scripts run as root, or without confinement."""
    if is_help(run) or run.has("--simulate", "--dry-run", "--test", "--download-only"):
        return False
    if run.name == "dpkg":
        return run.has("-i", "--install", "--unpack")
    if run.name == "rpm":
        return run.has("-i", "-U", "-F", "--install", "--upgrade", "--freshen", "--reinstall") and not run.has(
            "-q", "--query", "-V", "--verify", "-K", "-e"
        )
    if run.name == "pacman":
        return any(re.match(r"-U", o) for o in run.options) or run.has("--upgrade")
    if run.has("--allow-untrusted", "--dangerous", "--classic", "--devmode"):
        return True
    installs = run.operands[:1] in (("install",), ("in",), ("add",), ("localinstall",), ("reinstall",))
    return installs and any(_PACKAGE_FILE.match(o) for o in run.operands[1:])


_INSTALLERS = word_set("yarn pnpm corepack npm")
_ADDS_SOURCE = word_set("add install tap plugin source repo repository config")


def _adds_source(run: Invocation) -> bool:
    """Match a plugin or a source of packages that is added by its address."""
    addresses = [a for a in run.args if re.match(r"(?:[\w.-]{1,60}@)?(?:https?|git|ssh)://|git@", a) and _is_unusual(a)]
    is_added = run.name in _INSTALLERS or not _ADDS_SOURCE.isdisjoint(run.operands[:3])
    return bool(addresses) and is_added and not is_help(run)


_INSTALL_WORD = re.compile(r"(?:\w{1,30}[:.-])?install\Z")


def installed_address_dangers(run: Invocation) -> Iterator[Danger]:
    """Yield the danger of any program that installs something from an address: an extension, a plug-in, a theme."""
    at = next((i for i, word in enumerate(run.operands[:3]) if _INSTALL_WORD.match(word)), None)
    if at is None or run.name in ("curl", "wget") or is_help(run):
        return
    if any(re.match(r"https?://|git@|git://", word) and _is_unusual(word) for word in run.operands[at + 1 :]):
        yield Danger("package-source", run.summary)


def _builds_remote(run: Invocation) -> bool:
    """Match `docker build https://…`: the build runs commands of another repository."""
    at = next((i for i, word in enumerate(run.operands[:2]) if word in ("build", "bud", "bake")), None)
    return at is not None and any(_REMOTE_PACKAGE.match(o) or o.startswith("git@") for o in run.operands[at + 1 :])


def _uninstalls_all(run: Invocation) -> bool:
    """Match packages that are uninstalled by a list which the command does not show."""
    is_list = run.has("-r", "--requirement") or any(has_taint(o) for o in run.operands)
    return "uninstall" in run.operands[:2] and is_list


def _runs_module(run: Invocation) -> bool:
    """Match `go run module@version`, which fetches a program and runs it."""
    packages = run.operands[1:2] if run.starts("run") else ()
    return any("@" in p and not p.startswith((".", "/")) and _is_unusual(p) for p in packages)


def _installs_repository(run: Invocation) -> bool:
    """Match `npm install owner/repository`."""
    folders = run.all_values_of("--prefix", "-C", "--dir", "--cwd", "-w", "--workspace", "-F", "--filter", "--cache")
    packages = [o for o in run.operands[1:] if o not in folders]
    return run.operands[:1] in (("install",), ("i",), ("add",)) and any(map(_GITHUB_NAME.match, packages))


def _adds_plugin(run: Invocation) -> bool:
    return any(re.match(r"--install-(?:extension|plugin)|--add-mcp\Z|-installPlugins\Z", o) for o in run.options) or (
        run.operands[:1] == ("installPlugins",)
    )


_GLOBAL_CHANGES = word_set("install i add require update upgrade uninstall remove rm un")


def _installs_globally(run: Invocation) -> bool:
    """Match packages that are installed for the user or the machine, not for the project."""
    if is_help(run) or not any(o in _GLOBAL_CHANGES for o in run.operands[:2]):
        return False
    if run.name in ("pip", "pip3", "uv"):
        return run.has("--break-system-packages", "--user", "--system")
    return run.has("-g", "--global", "--location") or run.operands[:1] == ("global",)


# Variables that make programs load libraries or run files.
_INJECTS = word_set(
    "LD_PRELOAD LD_AUDIT PYTHONSTARTUP PERL5DB BASH_ENV PROMPT_COMMAND ZDOTDIR GIT_EXTERNAL_DIFF GIT_SSH "
    "GIT_ASKPASS SSH_ASKPASS SUDO_ASKPASS GIT_PROXY_COMMAND GIT_TEMPLATE_DIR GIT_EXEC_PATH GCONV_PATH "
    "GIT_CONFIG_COUNT GIT_CONFIG_PARAMETERS GLIBC_TUNABLES PYTHONHOME CARGO_BUILD_RUSTC_WRAPPER RUSTC_WRAPPER"
)
# Variables that do so with some values only.
_INJECTING_VALUES = {
    "PS1": re.compile(r"\$\(|`"),
    "PS4": re.compile(r"\$\(|`"),
    "NODE_OPTIONS": re.compile(r"(?:^|\s)(?:-r|--require|--import|--loader|--experimental-loader)\b"),
    "PERL5OPT": re.compile(r"-[mMI]"),
    "RUBYOPT": re.compile(r"-[rI]"),
    "JAVA_TOOL_OPTIONS": re.compile(r"-(?:javaagent|agent)"),
    "_JAVA_OPTIONS": re.compile(r"-(?:javaagent|agent)"),
    "DOCKER_HOST": re.compile(r"(?:tcp|ssh)://(?!localhost|127\.)"),
    "ENV": re.compile(r"[~/]"),
    "PATH": re.compile(r"(?:^|:)(?:\.(?:/|:|\Z)|:)"),
    "GIT_SSH_COMMAND": re.compile(r"^(?!ssh\s)|ProxyCommand|LocalCommand"),
}
# Lists of folders that code is loaded from, none of which may be one that every user can write.
_SEARCH_PATH = re.compile(r"(?:\w{0,20}[A-Z]_?)?PATH|LD_LIBRARY_PATH|(?:PERL5|RUBY)LIB|NODE_PATH")
_NO_CODE_PATH = word_set("GOPATH XPATH INFOPATH MANPATH FPATH CDPATH")
# Options of other programs, in variables, that load or run something: `MAVEN_OPTS=-javaagent:x.jar`.
_OPTIONS_VARIABLE = re.compile(r"\w{0,40}(?:OPTS?|OPTIONS|FLAGS|ARGS)")
_LOADS = re.compile(
    r"(?:^|\s)(?:-javaagent|-agent(?:lib|path)|--require\b|--import\b|--loader\b|-C\s{0,2}linker=|--eval\b|SHELL=)"
)
# Variables that name a program, and programs that are usual there; others change what a command does.
_PROGRAM_VARIABLE = re.compile(
    r"(?:GIT_)?(?:SEQUENCE_)?EDITOR|VISUAL|(?:GIT_)?PAGER|BROWSER|\w{1,40}_ASKPASS|npm_config_script_shell", re.I
)
_USUAL_PROGRAM = re.compile(
    r"(?:/usr/bin/|/bin/)?(?:true|false|:|cat|less|more|most|bat|delta|echo|vim?|nvim|nano|emacs(?:client)?|code|micro|hx|ed|open"
    r"|xdg-open|subl|none|start|firefox|google-chrome|chromium|wslview|bash|sh|zsh)\b"
)
_TRUST_VARIABLE = re.compile(r"\w{0,30}(?:CA_BUNDLE|CA_CERTS?|CERT_FILE|CERT_DIR|CAINFO)")
_PROXY = re.compile(r"(?:https?|all|ftp|socks)_proxy", re.I)
_SHARED_FOLDER = re.compile(r"/(?:var/)?tmp(?:/|\Z)|/dev/shm(?:/|\Z)")
_SOURCE_VARIABLES = re.compile(
    r"(?:PIP_(?:EXTRA_)?INDEX_URL|PIP_TRUSTED_HOST|UV_(?:DEFAULT_|EXTRA_)?INDEX(?:_URL)?|npm_config_registry|GOPROXY"
    r"|YARN_NPM_REGISTRY_SERVER|BUNDLE_MIRROR\w*)\Z",
    re.I,
)
_UNCHECKED = re.compile(
    r"(?:NODE_TLS_REJECT_UNAUTHORIZED|PYTHONHTTPSVERIFY)=0|GOFLAGS=.{0,60}-insecure|GIT_SSL_NO_VERIFY=(?:1|true)|(?:GONOSUMDB|GONOSUMCHECK|GOINSECURE)=."
    r"|(?:HUSKY|LEFTHOOK)=0|SKIP=\S|\w{0,30}(?:SKIP|DISABLE|NO|IGNORE|BYPASS)_(?:HOOKS?|VERIFY|AUTH|SSL|TLS|SECURITY|CHECKS?)=(?:1|true|yes)\Z"
)


_MAX_LIST_CHARS = 4_000
_MAX_NAME_CHARS = 100


def _injects(run: Invocation) -> bool:
    for name, sign, value in (a.partition("=") for a in run.args):
        if not sign or not value:
            continue
        pattern = _INJECTING_VALUES.get(name)
        is_loader = name.startswith("DYLD_") and not name.startswith("DYLD_PRINT")
        is_search_path = _SEARCH_PATH.fullmatch(name[:_MAX_NAME_CHARS]) is not None and name not in _NO_CODE_PATH
        folders = value[:_MAX_LIST_CHARS].split(":") if is_search_path else ()
        if any(_SHARED_FOLDER.match(f) and run.zones.is_shared_temporary(f) for f in folders):
            return True
        if name in _INJECTS or is_loader or (pattern is not None and pattern.search(value)):
            return True
        is_trust = _TRUST_VARIABLE.fullmatch(name[:_MAX_NAME_CHARS]) is not None
        if is_trust and _SHARED_FOLDER.match(value) and run.zones.is_shared_temporary(value):
            return True
        if _OPTIONS_VARIABLE.fullmatch(name[:_MAX_NAME_CHARS]) and _LOADS.search(value[:_MAX_LIST_CHARS]):
            return True
        if _PROGRAM_VARIABLE.fullmatch(name) and not (_USUAL_PROGRAM.match(value) or has_taint(value)):
            return True
    return False


def _uses_other_proxy(run: Invocation) -> bool:
    """Match a proxy on another machine, which reads and may change all that is fetched."""
    pairs = (a.partition("=") for a in run.args)
    return any(
        _PROXY.fullmatch(n[:_MAX_NAME_CHARS]) and v and not (LOCAL_URL.match(v) or has_taint(v)) for n, _, v in pairs
    )


def _changes_source_variable(run: Invocation) -> bool:
    pairs = (a.partition("=") for a in run.args)
    return any(
        sign and value not in ("", "off", "direct") and _SOURCE_VARIABLES.match(n) and _is_unusual(value)
        for n, sign, value in pairs
    )


_SETTERS = "export declare typeset readonly local env sudo doas cross-env systemd-run"

RULES: tuple[RiskRule, ...] = (
    RiskRule(
        "package-source",
        "pip pip3 uv pipx uvx poetry pdm npm npx yarn pnpm bun bunx gem bundle cargo conda mamba",
        _uses_other_index,
        "pip install --index-url http://packages.example/simple requests",
    ),
    RiskRule(
        "package-source",
        "pip pip3 uv pipx uvx npm npx yarn pnpm bun bunx deno go",
        _installs_from_url,
        "pip install git+https://git.example/pkg",
    ),
    RiskRule(
        "package-source",
        "pip pip3 npm yarn pnpm bundle gem poetry conda mamba composer pdm uv",
        _changes_source,
        "npm config set registry http://packages.example",
    ),
    RiskRule(
        "package-source",
        "code code-insiders codium cursor windsurf idea pycharm webstorm goland clion",
        _adds_plugin,
        "code --install-extension somebody.tool",
    ),
    RiskRule("packages", "npm yarn pnpm bun pip pip3 uv composer", _installs_globally, "npm install -g somebody-cli"),
    RiskRule(
        "package-source",
        "cargo",
        lambda r: r.operands[:1] in (("install",), ("binstall",), ("add",)) and r.has("--git", "--index"),
        "cargo install --git x",
    ),
    RiskRule(
        "package-source",
        "dpkg rpm pacman apt apt-get aptitude dnf yum microdnf zypper apk snap flatpak",
        _installs_file,
        "dpkg -i tool.deb",
    ),
    RiskRule(
        "package-source",
        "gem asdf mise composer conda mamba poetry pdm brew krew rustup vagrant opam luarocks cpanm flatpak yarn pnpm "
        "corepack pre-commit ansible-galaxy dart flutter cordova ionic wp drush nuget dotnet nix-channel guix spack",
        _adds_source,
        "asdf plugin add other https://git.example/other",
    ),
    RiskRule("remote-code", "docker podman nerdctl buildah", _builds_remote, "docker build https://git.example/r.git"),
    RiskRule("packages", "pip pip3 uv", _uninstalls_all, "pip freeze | xargs pip uninstall -y"),
    RiskRule("package-source", "go", _runs_module, "go run tools.example/cmd@latest"),
    RiskRule("package-source", "npm yarn pnpm bun", _installs_repository, "npm install somebody/thing"),
    RiskRule(
        "package-source",
        "nix",
        lambda r: (
            r.operands[:1] in (("run",), ("shell",), ("develop",), ("profile",), ("build",), ("eval",))
            and any(_REMOTE_PACKAGE.match(o) for o in r.operands[1:])
        ),
        "nix run github:a/b",
    ),
    RiskRule(
        "package-source",
        "go",
        lambda r: (
            r.starts("env")
            and r.has("-w")
            and any(
                o.startswith(("GOPROXY=", "GONOSUMDB=", "GOINSECURE=", "GOFLAGS=-insecure", "GOSUMDB="))
                for o in r.operands
            )
        ),
        "go env -w GOPROXY=http://packages.example",
    ),
    RiskRule(
        "environment",
        "git",
        lambda r: any(
            re.match(r"core\.(?:fsmonitor|hookspath|gitproxy|askpass)=.", v, re.I) for v in r.all_values_of("-c")
        ),
        "git -c core.fsmonitor=./hook status",
    ),
    RiskRule("environment", _SETTERS, _injects, "LD_PRELOAD=./hook.so ls"),
    RiskRule("network", _SETTERS, _uses_other_proxy, "HTTPS_PROXY=http://proxy.example:8080 npm install"),
    RiskRule(
        "package-source", _SETTERS, _changes_source_variable, "PIP_INDEX_URL=http://packages.example pip install x"
    ),
    RiskRule(
        "security",
        _SETTERS,
        lambda r: any(_UNCHECKED.match(a) for a in r.args),
        "export NODE_TLS_REJECT_UNAUTHORIZED=0",
    ),
)
