#!/usr/bin/env python3
"""Two hosts on one machine: ranks as processes in network namespaces of their own, with a cable between, whose data
travel by the stand-in for NCCL.

    networks.py CASE --isobar build/apps/isobar --stand-ins build/lab/stand_ins

    names      rank 0's host writes 127.0.1.1 for its own name into /etc/hosts, as Debian does; the other one has its
               address
    six        no IPv4 at all
    unplugged  the cable is pulled in the midst of a run: each side names the other one, after a minute

Exit status 77, with the reason, where namespaces cannot be made.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from processes import SMALL, SMALL_DATA, Failure, check, skip


def ip(*words):
    subprocess.run(["ip", *words], check=True, stderr=subprocess.PIPE)


class Hosts:
    """Namespaces first and second with a pair of veth between them."""

    def __init__(self, addresses, four=True):
        self.names = [f"isobar{os.getpid()}{which}" for which in "ab"]
        cables = [f"ib{os.getpid()}{which}" for which in "ab"]
        for name in self.names:
            ip("netns", "add", name)
        ip("link", "add", cables[0], "netns", self.names[0], "type", "veth",
           "peer", cables[1], "netns", self.names[1])
        for name, cable, address in zip(self.names, cables, addresses):
            ip("-n", name, "link", "set", "lo", "up")
            if not four:
                ip("-n", name, "addr", "del", "127.0.0.1/8", "dev", "lo")
            ip("-n", name, "addr", "add", address, "dev", cable, *([] if four else ["nodad"]))
            ip("-n", name, "link", "set", cable, "up")
        self.cables = cables

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        for name in self.names:
            ip("netns", "del", name)

    def unplug(self):
        ip("-n", self.names[0], "link", "set", self.cables[0], "down")


def start(options, folder, hosts, rank, address, hosts_file, *flags):
    keys = {**SMALL, "dtype": "fp32"}
    settings = [word for key, value in keys.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    command = [options.isobar, "train", "--config", "tiny", "--data", folder / "data", "--run-dir", folder / "run",
               "--device", "emulator", "--backend", "nccl", "--comm-timeout", "20", *settings, *flags]
    script = 'mount --bind "$0" /etc/hosts && exec "$@"'
    own_hosts = folder / f"hosts{rank}"
    own_hosts.write_text(hosts_file)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "TERM": "dumb",
                   "ISOBAR_CUDA_LIBS": str(options.stand_ins), "LD_LIBRARY_PATH": str(options.stand_ins),
                   "MASTER_ADDR": address, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0",
                   "LOCAL_WORLD_SIZE": "1", **({"ISOBAR_JOB_KEY": options.key} if options.key else {})}
    return subprocess.Popen(["ip", "netns", "exec", hosts.names[rank], "unshare", "-m", "bash", "-c", script, own_hosts,
                             *map(str, command)], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def train(options, folder, hosts, address, files, *flags, meanwhile=lambda: None):
    ranks = [start(options, folder, hosts, rank, address, files[rank], *flags) for rank in range(2)]
    try:
        meanwhile()
        said = [rank.communicate(timeout=150) for rank in ranks]
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
    sentences = [[line for line in err.splitlines() if line.startswith("isobar: ")] for _, err in said]
    print([rank.returncode for rank in ranks], sentences)
    return [rank.returncode for rank in ranks], sentences, said


def check_trained(options, folder, hosts, address, files):
    status, sentences, said = train(options, folder, hosts, address, files)
    check(status == [0, 0] and sentences[1] == [], said)
    log = (folder / "run" / "out.log").read_text()
    met = re.search(r"the ranks, on 2 hosts, met at (port \d+ of .* \(all its addresses\))\n", log)
    check(met, log)
    # Without a secret anybody may come to that port.
    warning = (f"isobar: the job's key is no secret: who can reach {met[1]} could have taken a rank's place; "
               "set ISOBAR_JOB_KEY (docs/parallelism.md)")
    check(sentences[0] == ([] if options.key else [warning]), said)


def case_names(options, folder):
    with Hosts(["10.77.0.1/24", "10.77.0.2/24"]) as hosts:
        check_trained(options, folder, hosts, "node-a",
                      ["127.0.0.1 localhost\n127.0.1.1 node-a\n", "127.0.0.1 localhost\n10.77.0.1 node-a\n"])


def case_six(options, folder):
    with Hosts(["fd77::1/64", "fd77::2/64"], four=False) as hosts:
        check_trained(options, folder, hosts, "node-a", ["::1 node-a\n", "fd77::1 node-a\n"])


def case_unplugged(options, folder):
    def unplug():
        metrics = folder / "run" / "metrics.jsonl"
        end = time.monotonic() + 60
        while time.monotonic() < end and not metrics.exists():
            time.sleep(0.05)
        hosts.unplug()
        unplug.at = time.monotonic()
    with Hosts(["10.77.0.1/24", "10.77.0.2/24"]) as hosts:
        files = ["10.77.0.1 node-a\n"] * 2
        # The stand-in's data go another way: rank 0 stops there, as it would where they went by the cable.
        os.environ["ISOBAR_FAULT"] = "rank=0 call=60 do=hang"
        status, sentences, said = train(options, folder, hosts, "node-a", files, "--comm-timeout", "600", "--set",
                                        "num_iters=1000000", meanwhile=unplug)
        print(f"ended {time.monotonic() - unplug.at:.0f} s after the cable was pulled")
        check(status == [1, 1] and [len(its) for its in sentences] == [1, 1], said)
        for rank, other in ((0, 1), (1, 0)):
            named = re.search(f"rank {other}(: its host does not answer any more| does not answer)",
                              sentences[rank][0])
            check(named, f"rank {rank} does not name the other one:", said)
        check(time.monotonic() - unplug.at < 110, "late")


def main():
    cases = {name[5:]: case for name, case in globals().items() if name.startswith("case_")}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=cases)
    parser.add_argument("--isobar", type=pathlib.Path, required=True)
    parser.add_argument("--stand-ins", type=pathlib.Path, required=True)
    options = parser.parse_args()
    options.key = "" if options.case == "names" else "a secret"
    if subprocess.run(["unshare", "-mn", "ip", "link"], capture_output=True, check=False).returncode != 0:
        skip("network namespaces cannot be made here")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([options.isobar, "data", "synth", "--out", f"{folder}/data", *SMALL_DATA], check=True,
                       stdout=subprocess.DEVNULL)
        try:
            cases[options.case](options, pathlib.Path(folder))
        except Failure as failure:
            sys.exit(f"{options.case}: {failure}")
    print(f"{options.case}: well")


if __name__ == "__main__":
    main()
