"""Rules for containers, clusters, clouds and package registries."""

from __future__ import annotations

import re

from perdure.tools.shell_safety.invocation import Invocation
from perdure.tools.shell_safety.rules.rule import (
    RiskRule,
    is_dry_run,
    is_help,
)
from perdure.tools.shell_safety.rules.sending import LOCAL_URL, changes_service, ssh_command
from perdure.tools.shell_safety.targets import names_development
from perdure.tools.shell_safety.types import has_taint, word_set

_HOST_MOUNT = re.compile(
    r"^(?:/|/etc|/root|/home|/var|/usr|/var/run/docker\.sock|/run/docker\.sock|/proc|/sys|/dev)(?::|\Z)"
)

_MAX_POLICY_CHARS = 10_000
# Everybody, in the words of the storage clients.
_PUBLIC = re.compile(
    r"(?:^|\s)--(?:acl|canned-acl|s3-acl|predefined-acl|canned_acl)[= ](?:public|authenticated-?read)|--acl-public"
    r"|--grant-\w{1,20}[= ]\S{0,20}uri=\S{0,80}AllUsers|\ball(?:Authenticated)?Users\b|(?:^|\s)-a public-"
    r"|--public-access[= ](?:blob|container)|--allow-blob-public-access[= ]true|\ballPublic\b"
    r"|(?:anonymous|policy) set (?:public|download|upload)\b",
    re.I,
)

# What only looks, by the first words of a remote command.
_LOOKS = re.compile(
    r"\s*(?:cd|ls|cat|head|tail|grep|rg|find|df|du|free|uptime|whoami|id|hostname|uname|date|ps|top|who|w|last|wc|stat|echo|pwd|env"
    r"|true|exit|test|journalctl|dmesg|ss|netstat|ip|nproc|lscpu|git (?:log|status|diff|show|rev-parse|branch)"
    r"|systemctl (?:status|is-active|list-units|cat|show)|docker (?:ps|logs|images|inspect|stats)"
    r"|docker compose (?:ps|logs)|kubectl (?:get|describe|logs|top))\b"
)


def _docker_removes(run: Invocation) -> bool:
    words = run.operands
    if is_help(run):
        return False
    if "prune" in words[:2]:
        return True
    if words[:1] == ("compose",) or run.name == "docker-compose":
        rest = words[1:] if run.name == "docker" else words
        return ("down" in rest and run.has("-v", "--volumes", "--rmi")) or (rest[:1] == ("rm",) and run.has("-v"))
    if words[:2] in (
        ("volume", "rm"),
        ("volume", "remove"),
        ("network", "prune"),
        ("swarm", "leave"),
        ("stack", "rm"),
        ("service", "rm"),
        ("node", "rm"),
        ("secret", "rm"),
        ("system", "reset"),
    ):
        return True
    removes = words[:1] in (("rm",), ("rmi",)) or words[:2] in (("container", "rm"), ("image", "rm"))
    kills = words[:1] in (("kill",), ("stop",)) or words[:2] in (("container", "stop"), ("container", "kill"))
    many = any(has_taint(o) for o in words) or run.has("-a", "--all") or len(words) > 12
    return (removes and (run.has("-v", "--volumes") or many)) or (kills and many)


def _docker_opens_host(run: Invocation) -> bool:
    if not any(w in run.operands for w in ("run", "create", "exec")):
        return False
    mounts = run.all_values_of("-v", "--volume")
    sources = [m.partition("src=")[2] or m.partition("source=")[2] for m in run.all_values_of("--mount")]
    shares = any(run.value_of(o) == "host" for o in ("--pid", "--userns", "--ipc"))
    if (
        run.has("--privileged", "--cap-add", "--security-opt", "--device")
        or shares
        or any(_HOST_MOUNT.match(m) for m in (*mounts, *sources))
    ):
        return True
    folders = [m.split(":")[0].split(",")[0] for m in (*mounts, *sources)]
    paths = [f for f in folders if f.startswith(("/", "~", ".")) and not has_taint(f)]
    return any(
        run.zones.is_credential(p) or run.zones.contains_home(p) or run.classify(p).zone == "startup" for p in paths
    )


_HOST_ACCESS = re.compile(r"(?:privileged|host(?:PID|IPC|Network))\"?:\s{0,3}true|hostPath\"?:")
_KUBE_CHANGES = word_set(
    "apply create edit set label annotate rollout run expose scale patch replace autoscale debug attach"
)


def _kube_changes(run: Invocation) -> bool:
    if is_dry_run(run) or any(a.startswith("--dry-run") and a != "--dry-run=none" for a in run.args):
        return False
    values = run.all_values_of("-n", "--namespace", "--context", "--cluster", "--kubeconfig", "--as", "-s", "--server")
    words = tuple(o for o in run.operands if o not in values)
    if words[:2] == ("auth", "can-i"):
        return False
    if any(w in ("delete", "drain", "evict", "cordon", "taint") for w in words[:3]):
        return True
    manifest = f"{run.stdin or ''} {run.value_of('--overrides') or ''}"
    if words[:1] in (("apply",), ("create",), ("run",)) and _HOST_ACCESS.search(manifest[:_MAX_POLICY_CHARS]):
        return True
    if words[:2] in (("create", "clusterrolebinding"), ("create", "rolebinding")) and "admin" in " ".join(run.args):
        return True
    if words[:1] in (("scale",), ("patch",), ("replace",), ("autoscale",)) or (
        words[:1] == ("rollout",) and "undo" in words
    ):
        return True
    return not run.is_for_development and _changes_cluster(run, words)


def _changes_cluster(run: Invocation, words: tuple[str, ...]) -> bool:
    """Match what changes a cluster that is not known to be for development, or data of one that others use."""
    if words[:1] == ("exec",):
        return not _only_looks(" ".join(run.args[run.args.index("--") + 1 :]) if "--" in run.args else "")
    if words[:1] == ("cp",):
        return ":" in words[-1] or bool(run.production_targets)
    is_read = words[:2] in (("rollout", "status"), ("rollout", "history"), ("set", "last-applied"))
    return any(w in _KUBE_CHANGES for w in words[:1]) and not is_read


def _helm_releases(run: Invocation) -> bool:
    """Match a release in a cluster that is not known to be for development."""
    is_release = run.operands[:1] in (("install",), ("upgrade",), ("test",))
    return is_release and not (run.is_for_development or is_dry_run(run))


def _makes_public(run: Invocation) -> bool:
    """Match public access to stored data: an access list, a policy, a setting of the bucket."""
    if is_dry_run(run):
        return False
    text = " ".join(run.args)[:_MAX_POLICY_CHARS]
    if run.name == "aws" and "put-public-access-block" in run.operands:
        return "false" in text.lower()
    return bool(_PUBLIC.search(text))


def _gh_changes(run: Invocation) -> bool:
    words = run.operands
    if words[:1] == ("api",):
        method = (run.value_of("-X", "--method") or "").upper()
        # Fields make it a POST, which of GraphQL most often is a query.
        is_query = "graphql" in words and not any("mutation" in a for a in run.args)
        has_fields = run.has("-f", "-F", "--field", "--raw-field", "--input") and not is_query
        return method not in ("", "GET", "HEAD", "POST") or ((has_fields or method == "POST") and method != "GET")
    return (
        words[1:2] in (("delete",), ("archive",), ("transfer",))
        or words[:2]
        in (
            ("release", "create"),
            ("release", "edit"),
            ("release", "upload"),
            ("repo", "edit"),
            ("workflow", "disable"),
            ("secret", "set"),
        )
        or words[:2] in (("pr", "merge"), ("mr", "merge"))
        or (
            words[:2] == ("workflow", "run")
            and re.search(r"deploy|release|publish|prod", " ".join(words[2:])) is not None
        )
    )


def _setup_uploads(run: Invocation) -> bool:
    return any(o.endswith("setup.py") for o in run.operands[:1]) and any(
        w in ("upload", "register") for w in run.operands
    )


def _ansible_changes(run: Invocation) -> bool:
    """Match ad-hoc commands and playbooks that change other machines."""
    only_shows = ("-C", "--check", "--syntax-check", "--list-hosts", "--list-tasks", "--list-tags")
    if is_help(run) or run.has(*only_shows) or run.value_of("-c", "--connection") == "local":
        return False
    hosts = (*run.operands[:1], *run.all_values_of("-i", "--inventory"))
    if run.name == "ansible-playbook":
        return not any(re.match(r"localhost\b|127\.", host) for host in hosts[1:])
    if any(re.match(r"localhost\b|127\.", host) for host in hosts):
        return "state=absent" in (run.value_of("-a", "--args") or "")
    module = run.value_of("-m", "--module-name") or "command"
    if module.rpartition(".")[2] in ("command", "shell", "raw"):
        return not _only_looks(run.value_of("-a", "--args") or "")
    return module.rpartition(".")[2] not in ("ping", "setup", "debug", "stat", "gather_facts", "service_facts", "slurp")


def _only_looks(script: str) -> bool:
    """Whether every command of a short script is one that only looks."""
    if re.search(r">(?!\s*(?:/dev/null|&\d))", script[:_MAX_POLICY_CHARS]) or has_taint(script):
        return False
    return bool(script.strip()) and all(
        _LOOKS.match(part) for part in re.split(r"&&|\|\||[;|\n]", script[:_MAX_POLICY_CHARS]) if part.strip()
    )


def _changes_host(run: Invocation) -> bool:
    """Match a command that does not only look on another machine, unless that is one for development."""
    host, words = ssh_command(run)
    script = " ".join(words)
    if LOCAL_URL.match(host) or (not script and run.stdin is None):
        return False
    if names_development(host):
        return _is_root(script)
    return not _only_looks(re.sub(r"\b(?:sudo|doas)\s+(?:-\w+\s+)*", "", script or run.stdin or ""))


def _is_root(script: str) -> bool:
    is_root = re.search(r"(?:^|[;&|(\s])(?:sudo|doas|su)\s", f"{script} ") is not None
    return is_root and not _only_looks(re.sub(r"\b(?:sudo|doas)\s+(?:-\w+\s+)*", "", script))


def _removes_all_environment(run: Invocation) -> bool:
    return run.starts("env", "remove") and run.has("--all")


RULES = (
    RiskRule(
        "containers", "docker podman nerdctl docker-compose", _docker_removes, "docker system prune -af --volumes"
    ),
    RiskRule("containers", "docker podman nerdctl", _docker_opens_host, "docker run --privileged -v /:/host alpine"),
    RiskRule("cloud", "kubectl oc k", _kube_changes, "kubectl delete namespace production"),
    RiskRule("cloud", "helm", _helm_releases, "helm upgrade --install shop ./chart"),
    RiskRule("cloud", "ssh autossh", _changes_host, "ssh web.example 'sudo systemctl restart nginx'"),
    RiskRule(
        "exposure",
        "aws awslocal gsutil gcloud az s3cmd s5cmd mc rclone b2 doctl linode-cli",
        _makes_public,
        "aws s3 cp report.pdf s3://bucket/ --acl public-read",
    ),
    RiskRule("cloud", "gh glab hub", _gh_changes, "gh repo delete me/shop --yes"),
    RiskRule("cloud", "ansible ansible-playbook", _ansible_changes, "ansible all -m shell -a 'rm -rf /data'"),
    RiskRule("cloud", "curl wget http https xh", changes_service, "curl -X DELETE http://search:9200/_all"),
    RiskRule(
        "publish",
        "docker podman nerdctl buildah skopeo",
        lambda r: (
            r.operands[:1] == ("push",)
            or r.operands[:2] in (("image", "push"), ("manifest", "push"))
            or (r.operands[:1] in (("build",), ("buildx",)) and r.has("--push"))
            or (r.name == "skopeo" and r.operands[:1] == ("delete",))
        ),
        "docker push registry/shop:latest",
    ),
    RiskRule("publish", "python python3", _setup_uploads, "python setup.py sdist upload"),
    RiskRule(
        "cloud",
        "conda mamba",
        lambda r: _removes_all_environment(r) or (r.operands[:1] == ("remove",) and r.has("--all")),
        "conda remove --name work --all",
    ),
)
