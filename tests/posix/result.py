"""What came out of a suite."""

from harness import Failure


class Result:
    def __init__(self, passed=0, skipped=0):
        self.passed, self.skipped = passed, skipped
        self.failures = {} # name: why

    def fail(self, name, why):
        while name in self.failures:
            name += "'"
        self.failures[name] = why

    def step(self, name, function, *arguments, **named):
        """One case; a Failure or an error of the system fails it. Returns what the function does."""
        try:
            value = function(*arguments, **named)
        except (Failure, OSError) as e:
            self.fail(name, f"{type(e).__name__}: {e}")
            return None
        self.passed += 1
        return value

    def add(self, other, name):
        self.passed += other.passed
        for key, why in other.failures.items():
            self.fail(f"{name}/{key}", why)

    def __str__(self):
        return f"{self.passed} passed, {len(self.failures)} failed, {self.skipped} skipped"
