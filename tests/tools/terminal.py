"""The binary on a pseudo-terminal, as a person sees it."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time

from conftest import BINARY, PATIENCE, clean_environment


class Terminal:
    """stdin, stdout and stderr are one terminal (or stdout only: stdout_only=True)."""

    def __init__(self, *args, **env):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))

        def own_terminal():
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen([BINARY, *map(str, args)], stdin=slave, stdout=slave, stderr=slave, preexec_fn=own_terminal,
                                        env=clean_environment(**env))
        os.close(slave)
        self.seen = ""

    def read(self, seconds=0.1):
        if select.select([self.master], [], [], seconds)[0]:
            try:
                self.seen += os.read(self.master, 65536).decode(errors="replace")
            except OSError:  # the other side is closed
                return False
        return True

    def wait_for(self, text, seconds=PATIENCE):
        """Everything up to and with `text`, which is taken out of what was seen."""
        end = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < end, f"{text!r} did not come; seen: {self.seen!r}"
            if not self.read() and text not in self.seen:
                raise AssertionError(f"the command ended before {text!r}; seen: {self.seen!r}")
        before, self.seen = self.seen.split(text, 1)
        return before + text

    def send(self, text):
        os.write(self.master, text.encode())

    def finish(self, seconds=PATIENCE):
        """The exit code; what was still written is in .seen."""
        end = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < end, f"the command does not end; seen: {self.seen!r}"
            self.read()
        # What it wrote may still be on its way; behind the last of it comes the end.
        while self.read():
            assert time.monotonic() < end, f"the terminal has no end; seen: {self.seen!r}"
        os.close(self.master)
        return self.process.returncode
