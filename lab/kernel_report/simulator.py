"""Predicts the cycles that a loop takes on one quarter of a multiprocessor.

Warps go round the loop; the scheduler issues one instruction a cycle. Of which warp, NVIDIA does not say: by default of
the one that issued last, where that can go on, else of the youngest that can (Huerta et al. 2025, arXiv 2503.20481,
section 5.1); POLICIES has others, and how far they lie apart is what a prediction cannot know. An instruction issues
when its
warp's control codes allow it (sass.py), no scoreboard that it waits for is up, and its unit has room. Units:

    tensor, alu, fp64  busy for so many cycles an instruction (gpus.py)
    fma                the same; since Hopper two of them, of which one multiplies integers too
    mufu, lsu          behind a queue: a warp goes on while the queue has room
    shared memory      128 bytes a cycle for the four quarters: this one gets one cycle in four
    wgmma              runs beside the warp that issued it, in order of issue; WARPGROUP.DEPBAR waits for it. It reads
                       its operands from shared memory: while other instructions or TMA use that, it is held up
    cp.async           lands after the latency of the L2 cache; DEPBAR waits for groups of copies
    barriers           join the warps of a block; those that are named by registers pass a turn to the next warpgroup,
                       or meet a warp that moves data and is taken to be in time

Left out: conflicts between banks of registers and of shared memory, the instruction cache, waiting between quarters,
memory that is slower than its latency. TMA is taken to be in time. How far that is right is measured on kernels whose
speed is known.
"""
import collections
import re

import gpus
import pipes
import sass

QUEUE = 40  # cycles of work that may wait in front of lsu and mufu before issue stops
WGMMA_LATENCY = 48  # cycles from the last product to the registers
POLICIES = ("youngest", "round robin", "oldest", "the one behind")  # of the warps that can go on; the first by default
TURNS_BEFORE, TURNS = 3, 6  # turns until the warps have found their rhythm; turns that are timed


def operand_cycles(instruction):
    """Cycles of shared memory in which a wgmma reads its operands, 128 bytes each; 0 for others."""
    if not (wgmma := re.search(r"GMMA\.64x(\d+)x(\d+)", instruction.opcode)):
        return 0
    columns, depth = map(int, wgmma.groups())
    a_is_shared = re.match(r"R\d+, gdesc", instruction.operands) is not None
    return 2 * depth * (columns + (64 if a_is_shared else 0)) / 128


def tensor_cycles(gpu, instruction):
    """Cycles of a quarter's tensor unit; ValueError for shapes that are not known."""
    products = pipes.products_of(instruction) / gpu.tensor
    if "GMMA" in instruction.name:
        return max(products / gpu.wgmma, operand_cycles(instruction))
    return products / gpu.mma_sync * (2 if "TF32" in instruction.opcode else 1)


def lsu_cycles(instruction):
    """Cycles of the memory unit, of which each quarter has one in four: one for each 128 bytes at least."""
    name, opcode = instruction.name, instruction.opcode
    if name in ("LDSM", "STSM"):
        matrices = re.search(r"\.(\d)$", opcode)
        return gpus.QUARTERS * int(matrices.group(1) if matrices else 1)
    if name == "LDC" or name.startswith(("UTMA", "UBLKCP")):
        return 1
    return gpus.QUARTERS * gpus.WARP * sass.width_of(opcode) / 128


def joins_warpgroups(barrier):
    """Whether whole warpgroups meet at a barrier, and not one of them and a warp that moves data."""
    threads = re.search(r", 0x([0-9a-f]+)", barrier.operands)
    return threads is not None and int(threads.group(1), 16) % (4 * gpus.WARP) == 0


class Step:
    """An instruction of the loop as the quarter sees it."""

    def __init__(self, gpu, instruction, memory):
        self.pipe = pipes.pipe_of(instruction)
        self.control, name = instruction.control, instruction.name
        self.is_integer_product = name.startswith(("IMAD", "IMUL", "IDP"))
        self.kind, self.latency, self.operands, self.uses_shared = "", 0, 0, False
        if self.pipe == "tensor":
            self.cycles = tensor_cycles(gpu, instruction)
            self.operands = operand_cycles(instruction)
            if "GMMA" in name:
                self.kind = "wgmma_end" if "gsb0" in instruction.operands else "wgmma"
        elif self.pipe == "lsu":
            self.cycles = lsu_cycles(instruction)
            place = {"SHFL": "shuffle", "LDG": memory, "LD": memory, "ATOMG": "l2", "LDL": "local"}.get(name, "shared")
            self.latency = gpu.latencies[place]
            self.uses_shared = re.fullmatch(r"LDS|STS|LDSM|STSM|ATOMS|LDGSTS|SHFL", name) is not None
        elif self.pipe == "fma":
            self.cycles = gpu.rates["imad" if self.is_integer_product else "fma"]
        else:
            self.cycles = gpu.rates[self.pipe]
            self.latency = gpu.latencies["mufu"]
        if name == "LDGSTS":
            self.kind = "copy"
        elif name == "LDGDEPBAR":
            self.kind = "copy_end"
        elif name == "DEPBAR":
            self.kind = "copy_wait"
        elif instruction.opcode.startswith("WARPGROUP.DEPBAR"):
            self.kind = "wgmma_wait"
        elif name == "BAR" and instruction.operands.startswith("R") and joins_warpgroups(instruction):
            self.kind = "turn_pass" if "ARV" in instruction.opcode else "turn_wait"
        elif name == "BAR" and "ARV" not in instruction.opcode:
            self.kind = "barrier"
        count = re.search(r", 0x([0-9a-f]+)", instruction.operands)
        self.groups_left = int(count.group(1), 16) if count else 0  # of copies or products, behind a wait


class Warp:
    def __init__(self, block, index, ready):
        self.block, self.index, self.ready = block, index, ready
        self.at, self.turn, self.waits_at_barrier = 0, 0, False
        self.scoreboards = [0.0] * 6  # when each is down
        self.copies, self.copy_groups = 0.0, []  # when the open group's last copy lands; the same of closed ones
        self.product_groups = []  # when the products of each are there


class Block:
    def __init__(self, warps, ready):
        self.warps = [Warp(self, index, ready) for index in range(warps)]
        self.passed = {}  # (turn, warp): when that warp let the next one have its turn

    def turn_before(self, warp):
        """The turn that a warp's own must follow; None for the first of all."""
        if warp.index:
            return warp.turn, warp.index - 1
        return (warp.turn - 1, len(self.warps) - 1) if warp.turn else None


class Quarter:
    def __init__(self, gpu, turn, blocks, warps, memory, copied):
        self.gpu, self.steps = gpu, [Step(gpu, instruction, memory) for instruction in turn]
        self.two_fma = gpu.rates["fma"] == 1
        self.free = dict.fromkeys((*pipes.PIPES, "heavy"), 0.0)
        self.copied = copied / 128 / warps  # cycles of shared memory that TMA takes, a warp and turn
        self.ends = []  # of turns
        self.products = collections.deque()  # wgmmas that are not done: (end, share of shared memory that they take)
        self.blocks = [Block(warps, number * len(turn) / blocks) for number in range(blocks)]  # not all at once

    def unit_of(self, step):
        """The unit that takes an instruction, and from when on."""
        if step.pipe == "fma" and self.two_fma:
            heavy = step.is_integer_product or self.free["heavy"] <= self.free["fma"]
            return ("heavy", self.free["heavy"]) if heavy else ("fma", self.free["fma"])
        if step.pipe in ("lsu", "mufu"):
            return step.pipe, self.free[step.pipe] - QUEUE
        return step.pipe, 0.0 if step.kind.startswith("wgmma") else self.free[step.pipe]

    def earliest(self, warp):
        """When a warp's next instruction can issue, and its unit; None while it waits for other warps."""
        step = self.steps[warp.at]
        unit, time = self.unit_of(step)
        time = max(time, warp.ready, *(warp.scoreboards[barrier] for barrier in step.control.waits), 0.0)
        if warp.waits_at_barrier:
            return None
        if step.kind in ("copy_wait", "wgmma_wait"):
            groups = warp.copy_groups if step.kind == "copy_wait" else warp.product_groups
            time = max(time, *groups[:max(0, len(groups) - step.groups_left)], 0.0)
        elif step.kind == "turn_wait" and (before := warp.block.turn_before(warp)) is not None:
            if before not in warp.block.passed:
                return None
            time = max(time, warp.block.passed[before] + self.gpu.latencies["barrier"])
        return time, unit

    def issue(self, warp, now, unit):
        step = self.steps[warp.at]
        begin = max(now, self.free[unit])
        end = begin + (2 if step.pipe == "fma" and self.two_fma else step.cycles)
        self.free[unit] = end
        if step.operands:
            self.products.append((end, step.operands / step.cycles))
        elif step.uses_shared:
            self.hold_up_products(now, step.cycles)
        warp.ready = now + max(1, step.control.stall)
        for barrier, time in ((step.control.write_barrier, end + step.latency),
                              (step.control.read_barrier, end if step.pipe in ("lsu", "mufu") else now + 8)):
            if barrier < len(warp.scoreboards):
                warp.scoreboards[barrier] = max(warp.scoreboards[barrier], time)
        self.synchronise(warp, step, now, end)
        warp.at += 1
        if warp.at == len(self.steps):
            warp.at, warp.turn = 0, warp.turn + 1
            self.ends.append(now)
            self.hold_up_products(now, self.copied)

    def hold_up_products(self, now, cycles):
        """While others use shared memory, wgmmas cannot read their operands: they end later by what they lack."""
        while self.products and self.products[0][0] <= now:
            self.products.popleft()
        if not self.products:
            return
        lost = cycles * self.products[0][1]
        self.free["tensor"] += lost
        self.products = collections.deque((end + lost, share) for end, share in self.products)
        for block in self.blocks:
            for warp in block.warps:
                warp.product_groups = [end + lost if end > now else end for end in warp.product_groups]

    def synchronise(self, warp, step, now, end):
        """What an instruction means to those that wait for it."""
        if step.kind == "copy":
            warp.copies = max(warp.copies, end + self.gpu.latencies["l2"])
        elif step.kind == "copy_end":
            warp.copy_groups = [*warp.copy_groups[-8:], warp.copies]
        elif step.kind == "wgmma_end":
            warp.product_groups = [*warp.product_groups[-8:], end + WGMMA_LATENCY]
        elif step.kind == "turn_pass":
            warp.block.passed.setdefault((warp.turn, warp.index), now)
        elif step.kind == "barrier":
            warp.waits_at_barrier = True
            if all(other.waits_at_barrier for other in warp.block.warps):
                for other in warp.block.warps:
                    other.waits_at_barrier = False
                    other.ready = max(other.ready, now + self.gpu.latencies["barrier"])


def in_order(policy, team, last):
    """The warps, those first that a scheduler prefers."""
    if policy == "round robin":
        behind = team.index(last) + 1 if last else 0
        return team[behind:] + team[:behind]
    if policy == "the one behind":
        return sorted(team, key=lambda warp: (warp.turn, warp.at))
    return ([last] if last else []) + (team if policy == "oldest" else team[::-1])


def next_to_issue(quarter, team, now, last, policy):
    """(cycle, unit, warp): of the warps that can go on first, the one that the scheduler prefers."""
    best = None
    for warp in in_order(policy, team, last):
        if best and warp.ready >= best[0]:
            continue  # no earlier
        if (found := quarter.earliest(warp)) is not None:
            time = max(found[0], now)
            if best is None or time < best[0]:
                best = (time, found[1], warp)
            if time == now:
                break
    if best is None:
        raise ValueError("the warps of this loop wait for each other for ever: its barriers are not understood")
    return best


def cycles_a_turn(gpu, turn, blocks, warps, memory="l2", copied=0, policy=POLICIES[0]):
    """Predicted cycles in which every warp of a quarter goes once around, where the quarter has `warps` of each of
    `blocks` blocks. Loads take the latency of `memory` (gpus.py). TMA copies so many bytes a turn of a block."""
    quarter = Quarter(gpu, turn, blocks, warps, memory, copied)
    team = [warp for block in quarter.blocks for warp in block.warps]
    now, last = 0.0, None
    while len(quarter.ends) < (TURNS_BEFORE + TURNS) * len(team):
        now, unit, last = next_to_issue(quarter, team, now, last, policy)
        quarter.issue(last, now, unit)
        now += 1
    return (quarter.ends[-1] - quarter.ends[TURNS_BEFORE * len(team) - 1]) / TURNS


def busy_of(gpu, turn, warps):
    """{unit: cycles that one turn of so many warps takes of it}; `issue` is the scheduler."""
    busy = dict.fromkeys((*pipes.PIPES, "issue"), 0.0)
    for instruction in turn:
        step = Step(gpu, instruction, "l2")
        busy[step.pipe] += step.cycles * warps
        busy["issue"] += warps
    return busy
