"""Rules for containers, clusters, clouds and package registries."""

from __future__ import annotations

import re

from perdure.tools.shell_safety.invocation import Invocation
from perdure.tools.shell_safety.rules.rule import (
    RiskRule,
    any_command,
    any_operand,
    both,
    command,
    either,
    is_dry_run,
    is_help,
    option,
    unless,
)
from perdure.tools.shell_safety.rules.sending import DATA_OPTIONS, LOCAL_URL
from perdure.tools.shell_safety.types import has_taint, word_set

_HOST_MOUNT = re.compile(
    r"^(?:/|/etc|/root|/home|/var|/usr|/var/run/docker\.sock|/run/docker\.sock|/proc|/sys|/dev)(?::|\Z)"
)
_DELETES = re.compile(
    r"^(?:delete|terminate|destroy|deregister|purge|remove|drop|revoke|deactivate)(?:-|\Z|:)|^(?:rb|nuke)\Z|[-:]delete\Z"
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
_AWS_COSTS = re.compile(
    r"(?:run-(?:instances|job-flow|task|scheduled)|start-(?:instances|db-|notebook-instance|stream|task)|create-|request-spot"
    r"|purchase-|allocate-|update-auto-scaling-group|set-desired-capacity|modify-|update-service\Z|update-stack|deploy\Z"
    r"|restore-)"
)
_AWS_FREE = re.compile(
    r"create-(?:tags?|log-|invalidation|pull-request|presigned|commit|branch|change-?set|repository)"
)
# Operations that grant access, open the network, stop or change what runs, or run something elsewhere.
_AWS_CHANGES = re.compile(
    r"(?:authorize|attach|detach|associate|disassociate|stop|reboot|reset|replace|disable|enable|share|promote|failover|rotate"
    r"|import|cancel|change|send|publish|subscribe|admin|register|transfer)(?:-|\Z)|put-(?!object\Z|metric|log-events|item)"
    r"|add-(?!tags)|create-login-profile|update-(?:assume|login|function|table|service|user|role|bucket|domain)"
)
_CHANGES = re.compile(
    r"(?:add|set|update|patch|enable|disable|stop|restart|reset|reboot|attach|detach|grant|bind|promote|failover|rotate|import"
    r"|move|rollback|suspend|rebuild|restore|assign|migrate|regenerate|power-off|shutdown)(?:-|\Z)"
)
# Commands of cloud programs that concern this machine only.
_OWN_SETTINGS = word_set(
    "config configure auth account components init login logout extension cloud alias plugin context"
)
_PRODUCTION = re.compile(r"(?:^|[^a-z0-9])(?:prod|production|live)(?:[^a-z]|\Z)", re.I)
# What only looks, by the first words of a remote command.
_LOOKS = re.compile(
    r"\s*(?:cd|ls|cat|head|tail|grep|rg|find|df|du|free|uptime|whoami|id|hostname|uname|date|ps|top|who|w|last|wc|stat|echo|pwd|env"
    r"|true|exit|test|journalctl|dmesg|ss|netstat|ip|nproc|lscpu|git (?:log|status|diff|show|rev-parse|branch)"
    r"|systemctl (?:status|is-active|list-units|cat|show)|docker (?:ps|logs|images|inspect|stats)"
    r"|docker compose (?:ps|logs)|kubectl (?:get|describe|logs|top))\b"
)
_STARTS = re.compile(
    r"(?:create|start|resize|scale|deploy|restore|clone|up|power-on)\Z|create-(?:with-container|instance)"
)


def _docker_removes(run: Invocation) -> bool:
    words = run.operands
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
    if run.has("--privileged") or shares or any(_HOST_MOUNT.match(m) for m in (*mounts, *sources)):
        return True
    folders = [m.split(":")[0].split(",")[0] for m in (*mounts, *sources)]
    paths = [f for f in folders if f.startswith(("/", "~", ".")) and not has_taint(f)]
    return any(
        run.zones.is_credential(p) or run.zones.contains_home(p) or run.classify(p).zone == "startup" for p in paths
    )


def _runtime_removes(run: Invocation) -> bool:
    removes = any(o in ("rm", "rmi", "rmp", "remove", "delete", "del") for o in run.operands[:2])
    return removes and (run.name == "ctr" or run.has("-a", "--all", "-q", "--prune", "-f", "--force"))


def _commands_runtime(run: Invocation) -> bool:
    """Match requests to the socket of a container runtime that change something."""
    if not re.search(r"(?:docker|containerd|podman|crio)[\w.-]*\.sock\Z", run.value_of("--unix-socket") or ""):
        return False
    method = (run.value_of("-X", "--request") or "").upper()
    return method not in ("", "GET", "HEAD") or bool(run.all_values_of(*DATA_OPTIONS))


def _applies_url(run: Invocation) -> bool:
    files = run.all_values_of("-f", "--filename", "-k", "--kustomize")
    applies = any(w in ("apply", "create", "replace") for w in run.operands[:2]) and not is_dry_run(run)
    return applies and any(re.match(r"(?:https?|git)://|github\.com/", f) for f in files)


_HOST_ACCESS = re.compile(r"privileged:\s{0,3}true|host(?:PID|IPC|Network):\s{0,3}true|hostPath:")
# Usual on a development cluster.
_KUBE_CHANGES = word_set("apply create edit set label annotate rollout exec run cp expose")


def _kube(run: Invocation) -> bool:
    if is_dry_run(run) or any(a.startswith("--dry-run") and a != "--dry-run=none" for a in run.args):
        return False
    values = run.all_values_of("-n", "--namespace", "--context", "--cluster", "--kubeconfig", "--as", "-s", "--server")
    words = tuple(o for o in run.operands if o not in values)
    if words[:2] == ("auth", "can-i"):
        return False
    if any(w in ("delete", "drain", "evict", "cordon", "taint") for w in words[:3]):
        return True
    if "apply" in words[:1] and _HOST_ACCESS.search((run.stdin or "")[:_MAX_POLICY_CHARS]):
        return True
    if any(w in ("scale", "patch", "replace", "autoscale") for w in words[:1]):
        return True
    if any(w in _KUBE_CHANGES for w in words[:1]) and any(_PRODUCTION.search(v) for v in values):
        return True
    if words[:2] in (("create", "clusterrolebinding"), ("create", "rolebinding")) and "admin" in " ".join(run.args):
        return True
    return "rollout" in words[:1] and "undo" in words


def _makes_public(run: Invocation) -> bool:
    """Match access for everybody to stored data: an access list, a policy, a setting of the bucket."""
    if is_dry_run(run):
        return False
    text = " ".join(run.args)[:_MAX_POLICY_CHARS]
    if run.name == "aws" and "put-public-access-block" in run.operands:
        return "false" in text.lower()
    return bool(_PUBLIC.search(text))


def _terraform(run: Invocation) -> bool:
    words = run.operands
    if any(w.startswith("destroy") for w in words) or run.has("-destroy", "--destroy"):
        return "plan" not in words[:1]
    if words[:1] == ("apply",) or words[:2] == ("run-all", "apply"):
        return True
    return words[:2] in (("state", "rm"), ("state", "push"), ("workspace", "delete"), ("force-unlock",)) or words[
        :1
    ] in (("force-unlock",), ("taint",))


def _aws(run: Invocation) -> bool:
    if is_dry_run(run) or run.has("--dryrun"):
        return False
    words = run.operands
    if words[:1] == ("s3",):
        return (
            words[1:2] == ("rb",)
            or (words[1:2] in (("rm",),))
            or (words[1:2] in (("sync",), ("mv",)) and (run.has("--delete") or words[1] == "mv"))
        )
    if words[:1] != ("configure",) and not _is_local(run) and any(_AWS_CHANGES.match(w) for w in words[1:2]):
        return True
    return any(_DELETES.match(w) for w in words[:3]) or any(
        w
        in (
            "stop-instances",
            "put-bucket-policy",
            "put-bucket-acl",
            "create-access-key",
            "attach-user-policy",
            "schedule-key-deletion",
            "get-secret-value",
        )
        for w in words[:3]
    )


def _is_local(run: Invocation) -> bool:
    """Whether the endpoint is an emulator on this machine."""
    return run.name == "awslocal" or LOCAL_URL.match(run.value_of("--endpoint-url") or "") is not None


def _aws_creates(run: Invocation) -> bool:
    """Match operations that start or create what is paid for; `s3 mb` and the like cost nothing."""
    if is_dry_run(run) or run.has("--dryrun") or _is_local(run):
        return False
    return any(_AWS_COSTS.match(w) and not _AWS_FREE.match(w) for w in run.operands[1:2])


def _creates_something(run: Invocation) -> bool:
    words = run.operands
    if is_dry_run(run) or words[:1] in (("config",), ("auth",), ("init",), ("components",), ("login",), ("configure",)):
        return False
    # Emulators run on this machine.
    if "emulators" in words[:2]:
        return False
    is_change = words[:1] and words[0] not in _OWN_SETTINGS and any(_CHANGES.match(w) for w in words[1:5])
    return bool(is_change) or any(_STARTS.match(w) for w in words[1:5]) or words[:1] == ("deploy",)


def _deploys_stack(run: Invocation) -> bool:
    words = run.operands
    if is_dry_run(run) or run.has("--guided", "--no-execute-changeset", "--no-execute"):
        return False
    return words[:1] in (("up",), ("deploy",)) or words[:2] in (("svc", "deploy"), ("env", "deploy"))


def _deploys_site(run: Invocation) -> bool:
    """Match what replaces the public version of a site, or adds machines to it."""
    words = run.operands
    if is_dry_run(run):
        return False
    if run.name in ("vercel", "now", "netlify"):
        is_deployment = not words or words[:1] in (("deploy",), ("build",)) or "/" in words[0] or words[0] == "."
        is_public = run.has("--prod", "--prod-if-unlocked") or run.value_of("--target") == "production"
        return (is_deployment and words[:1] != ("build",) and is_public) or words[:1] in (("promote",), ("rollback",))
    if run.name in ("fly", "flyctl"):
        return words[:1] in (("deploy",), ("launch",), ("scale",)) or words[1:2] in (("create",), ("run",), ("start",))
    if run.name == "heroku":
        return words[:1] in (
            ("ps:scale",),
            ("ps:resize",),
            ("addons:create",),
            ("container:release",),
            ("releases:rollback",),
        )
    return (run.name == "wrangler" and words[:2] in (("deploy",), ("pages", "deploy"))) or words[:1] in (
        ("up",),
        ("publish",),
        ("deploy",),
    )


def _deletes_something(run: Invocation) -> bool:
    return not is_dry_run(run) and any(_DELETES.search(w) for w in run.operands[:6])


def _gsutil(run: Invocation) -> bool:
    words = run.operands
    return any(w in ("rm", "rb") for w in words[:2]) or ("rsync" in words and run.has("-d")) or ("mv" in words[:2])


def _http_delete(run: Invocation) -> bool:
    method = (run.value_of("-X", "--request", "--method") or "").upper()
    return (method == "DELETE" or "DELETE" in run.operands[:1]) and not is_help(run)


def _gh(run: Invocation) -> bool:
    words = run.operands
    if words[:1] == ("api",):
        return (run.value_of("-X", "--method") or "").upper() in ("DELETE", "PUT", "PATCH")
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


def _publishes(run: Invocation) -> bool:
    if is_dry_run(run):
        return False
    words = run.operands
    if run.name in ("npm", "pnpm", "yarn", "bun", "lerna", "nx", "changeset"):
        at = 1 if words[:1] in (("npm",), ("workspace",), ("workspaces",)) else 0
        return any(w in ("publish", "unpublish", "deprecate") for w in words[at : at + 2]) or words[:2] in (
            ("dist-tag", "add"),
            ("dist-tag", "rm"),
            ("owner", "add"),
            ("owner", "rm"),
            ("access", "public"),
        )
    return any(w in ("publish", "upload", "push", "yank", "release", "deploy", "bdist_upload") for w in words[:3])


def _setup_uploads(run: Invocation) -> bool:
    return any(o.endswith("setup.py") for o in run.operands[:1]) and any(
        w in ("upload", "register") for w in run.operands
    )


def _ansible(run: Invocation) -> bool:
    """Match ad-hoc commands and playbooks that change other machines."""
    only_shows = ("-C", "--check", "--syntax-check", "--list-hosts", "--list-tasks", "--list-tags")
    if is_help(run) or run.has(*only_shows) or run.value_of("-c", "--connection") == "local":
        return False
    hosts = (*run.operands[:1], *run.all_values_of("-i", "--inventory"))
    if run.name == "ansible-playbook":
        return not any(re.match(r"localhost\b|127\.", host) for host in hosts[1:])
    if any(re.match(r"localhost\b|127\.", host) for host in hosts):
        return False
    module = run.value_of("-m", "--module-name") or "command"
    if module.rpartition(".")[2] in ("command", "shell", "raw"):
        return not _only_looks(run.value_of("-a", "--args") or "")
    return module.rpartition(".")[2] not in ("ping", "setup", "debug", "stat", "gather_facts", "service_facts", "slurp")


def _only_looks(script: str) -> bool:
    """Whether every command of a short script is one that only looks."""
    return all(_LOOKS.match(part) for part in re.split(r"&&|\|\||[;|\n]", script[:_MAX_POLICY_CHARS]) if part.strip())


def _changes_host(run: Invocation) -> bool:
    """Match a command with the rights of root on another machine, and one that changes a production host."""
    host, *words = run.operands or ("",)
    script = " ".join(words)
    if not script or LOCAL_URL.match(host):
        return False
    is_root = re.search(r"(?:^|[;&|(\s])(?:sudo|doas|su)\s", f"{script} ") and not _only_looks(
        re.sub(r"\b(?:sudo|doas)\s+(?:-\w+\s+)*", "", script)
    )
    return bool(is_root) or (_PRODUCTION.search(host) is not None and not _only_looks(script))


def _commands_instance(run: Invocation) -> bool:
    """Match a command on an instance of a cloud: `gcloud compute ssh web --command=…`."""
    script = run.value_of("--command", "--scripts") or ""
    return bool(script) and not _only_looks(re.sub(r"\b(?:sudo|doas)\s+(?:-\w+\s+)*", "", script))


def _runs_on_many(run: Invocation) -> bool:
    """Match programs that run a command on many hosts."""
    words = " ".join(o for o in run.operands if not re.match(r"[\w.@,-]+\Z", o)) or " ".join(run.operands[-1:])
    return not is_help(run) and bool(run.operands) and not _only_looks(words)


def _gradle_publishes(run: Invocation) -> bool:
    return any(re.match(r":?(?:\w+:)*publish(?!ToMavenLocal)", o) for o in run.operands)


def _removes_all_environment(run: Invocation) -> bool:
    return run.starts("env", "remove") and run.has("--all")


RULES = (
    RiskRule(
        "containers", "docker podman nerdctl docker-compose", _docker_removes, "docker system prune -af --volumes"
    ),
    RiskRule("containers", "docker podman nerdctl", _docker_opens_host, "docker run --privileged -v /:/host alpine"),
    RiskRule("containers", "crictl ctr", _runtime_removes, "crictl rmi --prune"),
    RiskRule("containers", "curl wget", _commands_runtime, "curl --unix-socket /run/docker.sock -X POST http://d/x"),
    RiskRule("cloud", "kubectl oc k", _kube, "kubectl delete namespace production"),
    RiskRule("remote-code", "kubectl oc k", _applies_url, "kubectl apply -f https://files.example/all.yaml"),
    RiskRule("cloud", "ssh-copy-id", unless(either(is_help, option("-n"))), "ssh-copy-id me@host.example"),
    RiskRule(
        "cloud",
        "helm",
        both(any_command("uninstall", "delete", "del", "rollback"), unless(is_dry_run)),
        "helm uninstall shop",
    ),
    RiskRule(
        "cloud",
        "helm helmfile",
        lambda r: (
            any(w in ("upgrade", "install", "apply", "sync") for w in r.operands[:4])
            and not is_dry_run(r)
            and any(_PRODUCTION.search(a) for a in r.args)
        ),
        "helm upgrade shop ./chart --kube-context prod",
    ),
    RiskRule("cloud", "gcloud az", _commands_instance, "gcloud compute ssh web --command='docker rm -f app'"),
    RiskRule("cloud", "snmpset", unless(is_help), "snmpset -v2c -c private 10.0.0.1 1.3.6.1 i 2"),
    RiskRule(
        "cloud",
        "smbclient",
        lambda r: re.search(r"(?:^|[;\s])(?:del|deltree|rm|rmdir|rename)\s", r.value_of("-c") or "") is not None,
        "smbclient //files/share -c 'deltree reports'",
    ),
    RiskRule("cloud", "ssh autossh", _changes_host, "ssh web.example 'sudo systemctl restart nginx'"),
    RiskRule(
        "cloud",
        "pssh parallel-ssh pdsh clush dsh salt salt-ssh mco pscp prsync",
        _runs_on_many,
        "pdsh -w web[1-9] reboot",
    ),
    RiskRule(
        "cloud",
        "kind minikube k3d eksctl kops kubeadm",
        both(any_operand("delete", "reset", "destroy"), unless(is_dry_run)),
        "eksctl delete cluster --name prod",
    ),
    RiskRule(
        "exposure",
        "aws awslocal gsutil gcloud az s3cmd s5cmd mc rclone b2 doctl linode-cli",
        _makes_public,
        "aws s3 cp report.pdf s3://bucket/ --acl public-read",
    ),
    RiskRule("cloud", "terraform tofu terragrunt", _terraform, "terraform destroy -auto-approve"),
    RiskRule(
        "cloud",
        "pulumi cdk cdktf sst serverless sls copilot sam amplify",
        lambda r: any(w in ("destroy", "remove", "rm", "delete") for w in r.operands[:2]) and not is_dry_run(r),
        "pulumi destroy --yes",
    ),
    RiskRule("cloud", "aws awslocal", _aws, "aws s3 rm s3://bucket --recursive"),
    RiskRule(
        "cloud",
        "gcloud az doctl hcloud linode-cli oci ibmcloud aliyun openstack scw vultr-cli bq firebase",
        _deletes_something,
        "gcloud projects delete shop",
    ),
    RiskRule("cloud", "aws", _aws_creates, "aws ec2 run-instances --image-id ami-1 --count 8"),
    RiskRule(
        "cloud",
        "gcloud az doctl hcloud linode-cli oci ibmcloud aliyun openstack scw vultr-cli firebase",
        _creates_something,
        "gcloud compute instances create web --machine-type a3-highgpu-8g",
    ),
    RiskRule(
        "cloud",
        "eksctl kops",
        lambda r: r.operands[:1] in (("create",), ("scale",), ("upgrade",)) and not is_dry_run(r),
        "eksctl create cluster --nodes 20",
    ),
    RiskRule("cloud", "pulumi cdk cdktf sst serverless sls copilot sam", _deploys_stack, "pulumi up --yes"),
    RiskRule(
        "publish",
        "vercel now netlify fly flyctl heroku wrangler railway surge eb",
        _deploys_site,
        "vercel deploy --prod",
    ),
    RiskRule(
        "cloud",
        "vastai runpodctl sky modal jarvislabs prime-rl lambdacloud paperspace",
        any_operand("create", "launch", "start", "deploy", "up"),
        "vastai create instance 1234",
    ),
    RiskRule("cloud", "hdfs hadoop", option("-rm", "-rmr", "-rmdir", "-expunge", "-format"), "hdfs dfs -rm -r /data"),
    RiskRule("cloud", "nomad", lambda r: r.has("-purge") or r.operands[:2] == ("system", "gc"), "nomad system gc"),
    RiskRule(
        "publish",
        "skopeo",
        lambda r: r.operands[:1] in (("copy",), ("sync",)) and r.operands[-1].startswith("docker://"),
        "skopeo copy docker://a/x docker://b/x",
    ),
    RiskRule(
        "cloud", "vault bao", any_operand("seal", "step-down", "revoke", "disable", "rekey"), "vault operator seal"
    ),
    RiskRule("publish", "gh-pages", unless(is_help), "gh-pages -d dist"),
    RiskRule(
        "cloud",
        "gsutil s3cmd mc rclone b2 azcopy s5cmd",
        either(
            _gsutil,
            any_command("purge", "delete", "sync", "del", "rb", "remove", "rm", "move", "cleanup", "deletefile"),
        ),
        "gsutil -m rm -r gs://bucket",
    ),
    RiskRule(
        "cloud",
        "heroku",
        lambda r: any(re.search(r":(?:destroy|reset|delete|remove|uninstall|unset)\Z", o) for o in r.operands[:2]),
        "heroku apps:destroy shop",
    ),
    RiskRule(
        "cloud",
        "fly flyctl vercel netlify railway render now wrangler surge",
        lambda r: any(
            w in ("destroy", "remove", "rm", "delete", "down", "sites:delete", "teardown") for w in r.operands[:3]
        ),
        "fly apps destroy shop",
    ),
    RiskRule(
        "cloud",
        "vagrant virsh lxc multipass VBoxManage qm pct xe",
        lambda r: any(w in ("destroy", "undefine", "delete", "purge", "unregistervm") for w in r.operands[:2]),
        "vagrant destroy -f",
    ),
    RiskRule("cloud", "gh glab hub", _gh, "gh repo delete me/shop --yes"),
    RiskRule(
        "cloud", "argocd flux", lambda r: "delete" in r.operands[:2] or "uninstall" in r.operands[:1], "flux uninstall"
    ),
    RiskRule("cloud", "ansible ansible-playbook", _ansible, "ansible all -m shell -a 'rm -rf /data'"),
    RiskRule("cloud", "curl wget http xh", _http_delete, "curl -X DELETE http://search:9200/_all"),
    RiskRule("publish", "npm pnpm yarn bun lerna nx changeset", _publishes, "npm publish --access public"),
    RiskRule(
        "publish", "twine flit poetry hatch uv pdm maturin", both(_publishes, unless(is_help)), "twine upload dist/*"
    ),
    RiskRule(
        "publish",
        "cargo",
        lambda r: r.operands[:1] in (("publish",), ("yank",), ("release",)) and not is_dry_run(r),
        "cargo publish",
    ),
    RiskRule("publish", "gem", any_command("push", "yank"), "gem push shop-1.0.gem"),
    RiskRule(
        "publish",
        "dart flutter jsr deno luarocks anaconda snapcraft charmcraft stack cabal opam elm crane oras hf eas",
        lambda r: (
            not is_dry_run(r)
            and (
                any_command("publish", "upload", "push", "submit", "unpublish", "retract")(r)
                or r.starts("pub", "publish")
            )
        ),
        "dart pub publish",
    ),
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
    RiskRule("publish", "mvn mvnw", any_operand("deploy", "release:perform"), "mvn deploy"),
    RiskRule("publish", "gradle gradlew", _gradle_publishes, "./gradlew publish"),
    RiskRule(
        "publish",
        "nuget dotnet",
        lambda r: r.operands[:1] == ("push",) or r.operands[:2] in (("nuget", "push"), ("nuget", "delete")),
        "dotnet nuget push x.nupkg",
    ),
    RiskRule(
        "publish",
        "vsce ovsx pod fastlane goreleaser semantic-release np release-it mix",
        lambda r: (
            not is_dry_run(r)
            and (
                r.name in ("semantic-release", "np", "release-it")
                or any(
                    w
                    in (
                        "publish",
                        "push",
                        "release",
                        "hex.publish",
                        "hex.retire",
                        "deliver",
                        "unpublish",
                        "deprecate",
                        "delete",
                    )
                    for w in r.operands[:2]
                )
            )
        ),
        "vsce publish",
    ),
    RiskRule("publish", "python python3", _setup_uploads, "python setup.py sdist upload"),
    RiskRule("publish", "helm", command("push"), "helm push shop-1.0.tgz oci://registry"),
    RiskRule(
        "cloud",
        "conda mamba",
        lambda r: _removes_all_environment(r) or (r.operands[:1] == ("remove",) and r.has("--all")),
        "conda remove --name work --all",
    ),
    RiskRule("cloud", "crm pcs galera_recovery", option("--force"), "pcs cluster destroy --force"),
)
