"""A made-up host and device with exact times, in place of the marks of a GPU: no time passes but what a test says."""

from collections import deque

US = 1e3
MS = 1e6


class MadeUpMarks:
    """Marks on a host that advances by ``host`` and a device that works off what ``device`` queues."""

    modelled = False

    def __init__(self, device, count, latency_ns=0.0, device_clock_ahead_ns=7e12):
        self.now_ns = 0.0
        self.drained_ns = 0.0
        self.latency_ns = latency_ns
        self.ahead_ns = device_clock_ahead_ns  # the two clocks have nothing in common
        self.recorded, self.passes, self.bounds = [0.0] * count, [0.0] * count, [(0.0, 0.0)] * count
        self.order, self.records = [0] * count, 0
        self.pending = deque()
        self.elapsed_calls = 0
        self.closed = False
        self.stuck = False  # the device passes nothing

    def host(self, ns):
        """The host is busy."""
        self.now_ns += ns

    def device(self, ns):
        """The host queues work."""
        self.drained_ns = max(self.now_ns + self.latency_ns, self.drained_ns) + ns

    def wait(self):
        """The host waits for the device."""
        self.now_ns = max(self.now_ns, self.drained_ns)

    def clock_ns(self):
        return self.now_ns

    def record(self, mark):
        assert mark not in self.pending, "a mark is forgotten before it is recorded again"
        self.records += 1
        self.order[mark] = self.records
        self.recorded[mark] = self.now_ns
        self.passes[mark] = max(self.now_ns + self.latency_ns, self.drained_ns)
        self.bounds[mark] = (self.now_ns, None)
        self.pending.append(mark)

    def look(self):
        while self.pending:
            mark = self.pending[0]
            if self.stuck or self.passes[mark] > self.now_ns:
                self.bounds[mark] = (self.now_ns, None)
                return
            self.bounds[mark] = (self.bounds[mark][0], self.now_ns)
            self.pending.popleft()

    def forget(self, first, last):
        while self.pending and first <= self.pending[0] <= last:
            self.pending.popleft()

    def has_passed(self, mark):
        return self.bounds[mark][1] is not None

    def host_ns(self, mark):
        return self.recorded[mark]

    def bounds_ns(self, mark):
        assert self.has_passed(mark)
        return self.bounds[mark]

    def elapsed_ns(self, start, end):
        assert self.has_passed(start)
        assert self.has_passed(end)
        assert 0 < self.order[end] - self.order[start] <= 2, "marks near each other"
        self.elapsed_calls += 1
        return (self.passes[end] + self.ahead_ns) - (self.passes[start] + self.ahead_ns)

    def close(self):
        self.closed = True
