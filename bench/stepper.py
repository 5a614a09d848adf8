"""Programs that make training steps when they are sent a line with their number, and answer with one JSON object: so
that several can take turns on one machine."""
import json
import pathlib
import re
import subprocess
import sys


class Stepper:
    def __init__(self, command, environment):
        self.process = subprocess.Popen([str(word) for word in command], env=environment, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def step(self, count=1):
        """What the program says of its steps: {"seconds": of one, "loss": of the last}."""
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.process.args[0]} ended with status {self.process.wait()}")
        return json.loads(line)

    def close(self):
        """Ends the process; returns the most memory it ever held, in bytes."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        self.process.stdin.close()
        self.process.wait()
        return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1))
