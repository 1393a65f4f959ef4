"""Programs in front of another: `sudo`, `timeout 5`, `poetry run`, `docker exec web`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prefix:
    """A program in front of another: which options take a value, how many operands come before the other."""

    values: str = ""
    skips: int = 0
    script: str = ""
    is_elsewhere: bool = False


PREFIXES: dict[str, Prefix] = {
    "sudo": Prefix("-u -g -h -p -C -r -t -T -U -D -R --user --group --host --prompt --chdir --role --type --chroot"),
    "doas": Prefix("-u -C"),
    "nohup": Prefix(),
    "timeout": Prefix("-s -k --signal --kill-after", 1),
    "gtimeout": Prefix("-s -k --signal --kill-after", 1),
    "nice": Prefix("-n --adjustment"),
    "ionice": Prefix("-c -n -p -P -u --class --classdata"),
    "stdbuf": Prefix("-i -o -e --input --output --error"),
    "setsid": Prefix(),
    "time": Prefix("-f -o --format --output"),
    "exec": Prefix("-a"),
    "builtin": Prefix(),
    "strace": Prefix("-e -o -p -s -P -u -E"),
    "ltrace": Prefix("-e -o -p -s -u"),
    "chroot": Prefix("", 1, is_elsewhere=True),
    "nsenter": Prefix("-t --target -S -G", is_elsewhere=True),
    "unshare": Prefix("-S -G -R -w"),
    "flock": Prefix("-w -E --timeout", 1, "-c"),
    "busybox": Prefix(),
    "toybox": Prefix(),
    "caffeinate": Prefix("-t -w"),
    "proxychains": Prefix("-f"),
    "proxychains4": Prefix("-f"),
    "torsocks": Prefix(),
    "xvfb-run": Prefix("-e -f -n -s"),
    "dbus-run-session": Prefix("--config-file"),
    "systemd-run": Prefix("-p -u --unit --property --uid --gid -E"),
    "pkexec": Prefix("--user"),
    "gosu": Prefix("", 1),
    "su-exec": Prefix("", 1),
    "fakeroot": Prefix("-l -s -i"),
    "faketime": Prefix("", 1),
    "unbuffer": Prefix(),
    "rlwrap": Prefix(),
    "taskset": Prefix("", 1),
    "chrt": Prefix("", 1),
    "numactl": Prefix(),
    "firejail": Prefix(),
    "dotenv": Prefix("-f -e"),
    "cross-env": Prefix(),
    "chronic": Prefix(),
    "npx": Prefix("-p --package", 0, "-c"),
    "bunx": Prefix(),
    "uvx": Prefix("--from --with"),
    "watch": Prefix("-n --interval -d", 0),
    "entr": Prefix(),
    "script": Prefix("", 99, "-c"),
    "su": Prefix("", 99, "-c"),
    "runuser": Prefix("-u -g", 0, "-c"),
    "nix-shell": Prefix("", 99, "--run"),
    "hyperfine": Prefix("-w -r --warmup --runs"),
    "perf": Prefix("-e -o", 1),
    "valgrind": Prefix(),
    "coverage": Prefix("", 1),
    "setpriv": Prefix(),
    "sg": Prefix("", 1, "-c"),
    "start-stop-daemon": Prefix("", 99, "--exec"),
}
# A program whose first words say that another follows.
SUBCOMMANDS: dict[tuple[str, ...], Prefix] = {
    ("bundle", "exec"): Prefix(),
    ("poetry", "run"): Prefix(),
    ("uv", "run"): Prefix("--with --python -p --extra --group --project --directory"),
    ("pipenv", "run"): Prefix(),
    ("pdm", "run"): Prefix(),
    ("rye", "run"): Prefix(),
    ("hatch", "run"): Prefix(),
    ("pipx", "run"): Prefix("--spec"),
    ("conda", "run"): Prefix("-n -p --name --prefix"),
    ("mamba", "run"): Prefix("-n -p"),
    ("npm", "exec"): Prefix("-p --package", 0, "-c"),
    ("pnpm", "exec"): Prefix(),
    ("pnpm", "dlx"): Prefix("--package"),
    ("yarn", "dlx"): Prefix("-p"),
    ("yarn", "exec"): Prefix(),
    ("direnv", "exec"): Prefix("", 1),
    ("mise", "exec"): Prefix(),
    ("asdf", "exec"): Prefix(),
    ("op", "run"): Prefix("--env-file"),
    ("doppler", "run"): Prefix("-p -c"),
    ("aws-vault", "exec"): Prefix("", 1),
    ("nix", "develop"): Prefix("", 99, "-c"),
    ("vagrant", "ssh"): Prefix("", 99, "-c", True),
    ("docker", "exec"): Prefix("-u -w -e --user --workdir --env --env-file", 1, is_elsewhere=True),
    ("docker", "run"): Prefix(
        "-u -w -e -v -p -m -h -l --user --workdir --env --env-file --volume --publish --name --network --mount --memory"
        " --cpus --entrypoint --platform --add-host --label --hostname --gpus --device --cap-add --cap-drop --net",
        1,
        is_elsewhere=True,
    ),
    ("docker", "compose", "exec"): Prefix("-u -w -e --user --workdir --env --index", 1, is_elsewhere=True),
    ("docker", "compose", "run"): Prefix(
        "-u -w -e -v -p --user --workdir --env --name --entrypoint", 1, is_elsewhere=True
    ),
    ("docker-compose", "exec"): Prefix("-u -w -e --user --workdir --env", 1, is_elsewhere=True),
    ("docker-compose", "run"): Prefix(
        "-u -w -e -v -p --user --workdir --env --name --entrypoint", 1, is_elsewhere=True
    ),
    ("kubectl", "exec"): Prefix("-n -c --namespace --container", 1, is_elsewhere=True),
    ("oc", "exec"): Prefix("-n -c", 1, is_elsewhere=True),
    ("lxc", "exec"): Prefix("", 1, is_elsewhere=True),
    ("git", "bisect", "run"): Prefix(),
    ("heroku", "run"): Prefix("-a --app", 0, is_elsewhere=True),
    ("fly", "ssh", "console"): Prefix("", 99, "-C", True),
}
