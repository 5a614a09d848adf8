"""Predicts the time of a kernel's launch: the simulated loop times its turns, or the bytes, whichever takes longer."""
import dataclasses
import functools
import math

import gpus
import loops
import pipes
import simulator


@dataclasses.dataclass(frozen=True)
class Launch:
    blocks: int
    threads: int  # a block
    shared: int  # dynamic shared memory, bytes a block
    turns: float  # of the main loop, each warp
    bytes: float = 0  # of device memory that must be read and written
    streams: bool = False  # whether loads come from device memory; else they are found in the L2 cache
    copied: float = 0  # bytes of shared memory a block and turn that TMA writes and reads
    persistent: bool = False  # as many blocks as fit take one tile after the other; loads run ahead into the next
    an_sm: int = 0  # where the grid follows the device: blocks an SM, which share `turns` among them; `blocks` at most
    side: int = 1  # of such a grid: its rows are whole
    inner: int = 0  # how often a turn goes through the loops inside it; 0: there are none

    def on(self, gpu):
        """The launch on a GPU, its grid known."""
        if not self.an_sm:
            return self
        blocks = min(self.blocks, self.an_sm * gpu.sms // self.side * self.side)
        return dataclasses.replace(self, blocks=blocks, turns=math.ceil(self.turns / blocks), an_sm=0)


@dataclasses.dataclass(frozen=True)
class Prediction:
    seconds: float
    floor: float  # seconds in which a copy moves the bytes
    bound: str  # what binds: "memory", a unit that is busy most of the time, or "latency"
    resident: int  # blocks an SM
    counts: list  # instructions of one turn


@functools.cache
def ways_of(function, inner=0):
    """(how many instructions lie outside the main loop, those of one turn of it, how many turns' products lie outside);
    where nothing loops all are the turn."""
    blocks = loops.blocks_of(function)
    whole, loop = loops.straight_way_of(blocks), loops.main_loop_of(blocks)
    if not loop:
        return 0, whole, 0
    turn, once = loops.turn_of(blocks, loop, inner), loops.turn_of(blocks, loop)
    products, of_turn = (sum(map(pipes.products_of, code)) for code in (whole, turn))
    return max(0, len(whole) - len(once)), turn, products / of_turn - 1 if of_turn else 0


_cycles = {}  # GPUs that run the same code have the same multiprocessors here


def simulated(gpu, function, blocks, warps, launch, policy):
    memory = "memory" if launch.streams else "l2"
    key = gpu.code, gpu.mma_sync, function, blocks, warps, memory, launch.copied, launch.inner, policy
    if key not in _cycles:
        turn = ways_of(function, launch.inner)[1]
        _cycles[key] = simulator.cycles_a_turn(gpu, turn, blocks, warps, memory, launch.copied, policy)
    return _cycles[key]


def range_of(gpu, function, resources, launch):
    """(the least, the most) seconds over the schedulers that the hardware may have."""
    seconds = [predict(gpu, function, resources, launch, policy).seconds for policy in simulator.POLICIES]
    return min(seconds), max(seconds)


def predict(gpu, function, resources, launch, policy=simulator.POLICIES[0]):
    """The prediction for one launch; ValueError where no block fits an SM."""
    launch = launch.on(gpu)
    resident = gpus.blocks_an_sm(gpu, resources.registers, resources.shared + launch.shared, launch.threads)
    if not resident:
        raise ValueError(f"{function.name}: no block fits a multiprocessor of {gpu.name}")
    outside, turn, peeled = ways_of(function, launch.inner)

    def cycles_of_round(together):
        """Of a block's whole life, where an SM has so many; what is outside the loop runs at the loop's own rate."""
        warps = -(-launch.threads // gpus.WARP)
        teams, members = (together, warps // gpus.QUARTERS) if warps >= gpus.QUARTERS else \
            (-(-together * warps // gpus.QUARTERS), 1)
        cycles = simulated(gpu, function, teams, members, launch, policy)
        busy = simulator.busy_of(gpu, turn, teams * members)
        turns = max(launch.turns - peeled, 0) + outside / len(turn)
        life = turns * cycles + (0 if launch.persistent else 2 * gpu.latencies["memory"])
        return life, {unit: of_it / cycles for unit, of_it in busy.items()}

    rounds, rest = divmod(launch.blocks, gpu.sms * resident)
    full, shares = cycles_of_round(min(resident, -(-launch.blocks // gpu.sms)))
    last = cycles_of_round(-(-rest // gpu.sms))[0] if rest else 0
    computed = (rounds * full + last) / gpu.clock * 1e-9
    moved = launch.bytes / gpu.copy_rate * 1e-9
    unit = max(shares, key=shares.get)
    bound = "memory" if moved > computed else unit if shares[unit] > 0.8 else "latency"
    return Prediction(max(computed, moved), moved, bound, resident, turn)
