"""The flow of control in a kernel's machine code: basic blocks, loops, and the way one turn of a loop takes.

Loops are the natural loops of back edges (Aho, Sethi & Ullman 1986, section 10.4): a branch to a block that dominates
it. Which way a turn takes through the branches inside cannot be told from the code alone. It is taken to be the one
that does the most work (tensor instructions, then bytes of global memory), and the shortest of those: so the next tile
is loaded, and masks of a ragged last tile, dropout that is off, loads element by element and slow paths of divisions
are passed by. Where a kernel branches on the type of its elements the widest type is taken. How often a turn goes
through a loop inside it cannot be told either: it is passed by where that can be, and gone through once else; or, where
the caller knows how often, it is on the way, and gone through so often. (What only waits is no such loop.)
"""
import dataclasses
import functools
import re
import sys

import sass


def work_of(instruction):
    """How much an instruction is what a loop is for: bytes of global memory a lane; of tensors and TMA more."""
    if is_tensor(instruction) or re.fullmatch(r"UTMALDG|UTMASTG|UTMAREDG|UBLKCP", instruction.name):
        return 1 << 10
    is_global = re.fullmatch(r"LDG|LDGSTS|STG|RED|REDG|ATOMG", instruction.name)
    return sass.width_of(instruction.opcode) if is_global else 0


def is_tensor(instruction):
    return re.fullmatch(r"[HIQBD]G?MMA", instruction.name) is not None


@dataclasses.dataclass
class Block:
    instructions: list
    successors: list  # numbers of blocks; first the one that is jumped to, last the one that follows


@dataclasses.dataclass(frozen=True)
class Loop:
    header: int
    blocks: frozenset


def blocks_of(function):
    """Basic blocks; block 0 is the entry. A call comes back, BSYNC goes on behind it."""
    code = function.instructions
    starts = {code[0].address}
    for here, after in zip(code, code[1:] + [None]):
        if here.name == "BRA" and here.target is not None:
            starts.add(here.target)
        if here.name in ("BRA", "BRX", "EXIT", "RET", "JMX") and after:
            starts.add(after.address)
    starts &= {instruction.address for instruction in code}
    number = {address: index for index, address in enumerate(sorted(starts))}
    blocks = [Block([], []) for _ in starts]
    for here in code:
        if here.address in number:
            current = number[here.address]
        blocks[current].instructions.append(here)
    for index, block in enumerate(blocks):
        last = block.instructions[-1]
        conditional = last.guard != "" or last.name not in ("BRA", "BRX", "EXIT", "RET", "JMX") or \
            re.match(r"!?U?P\w", last.operands) is not None or ".DIV" in last.opcode or ".CONV" in last.opcode
        if last.name == "BRA" and last.target in number:
            block.successors.append(number[last.target])
        if conditional and index + 1 < len(blocks):
            block.successors.append(index + 1)
    return blocks


def dominators_of(blocks):
    """For each block those that every way to it passes, itself among them; None where no way leads."""
    predecessors = [[] for _ in blocks]
    for index, block in enumerate(blocks):
        for successor in block.successors:
            predecessors[successor].append(index)
    dominators = [None] * len(blocks)
    dominators[0] = frozenset([0])
    changed = True
    while changed:
        changed = False
        for index in range(1, len(blocks)):
            known = [dominators[p] for p in predecessors[index] if dominators[p] is not None]
            if known:
                new = frozenset.intersection(*known) | {index}
                changed |= new != dominators[index]
                dominators[index] = new
    return dominators, predecessors


def loops_of(blocks):
    """All natural loops, those of one header joined, the largest first."""
    dominators, predecessors = dominators_of(blocks)
    members = {}
    for index, block in enumerate(blocks):
        for header in block.successors:
            if dominators[index] is None or header not in dominators[index]:
                continue
            loop, pending = members.setdefault(header, {header}), [index]
            while pending:
                inside = pending.pop()
                if inside not in loop and dominators[inside] is not None:
                    loop.add(inside)
                    pending.extend(predecessors[inside])
    return sorted((Loop(header, frozenset(loop)) for header, loop in members.items()),
                  key=lambda loop: (-len(loop.blocks), loop.header))


def turn_of(blocks, loop, inner=0):
    """The instructions of one turn of a loop, in the order in which they execute (see above), the loops inside it gone
    through `inner` times, where that is not 0."""
    loops = {one.header: one for one in inner_loops(blocks, loop)} if inner else {}
    way = _way(blocks, loop.header, loop.blocks, lambda successor: successor == loop.header, frozenset(loops))
    again = {header: turn_of(blocks, one) * (inner - 1) for header, one in loops.items()}
    return [instruction for index in way for instruction in again.get(index, []) + blocks[index].instructions]


def inner_loops(blocks, loop):
    """The loops right inside a loop that do more than wait: for a barrier, or for registers of others."""
    inside = [one for one in loops_of(blocks) if one.blocks < loop.blocks and one.header != loop.header]
    outermost = [one for one in inside if not any(one.blocks < other.blocks for other in inside)]
    return [one for one in outermost
            if not any(re.fullmatch(r"SYNCS|USETMAXREG|NANOSLEEP", instruction.name)
                       for index in one.blocks for instruction in blocks[index].instructions)]


def straight_way_of(blocks):
    """The same of a whole kernel, each loop gone through once."""
    way = _way(blocks, 0, frozenset(range(len(blocks))), lambda successor: False)
    return [instruction for index in way for instruction in blocks[index].instructions]


def _way(blocks, start, allowed, is_end, wanted=frozenset()):
    """The blocks of the way that passes most of the wanted ones, and of those the one that does the most work."""
    dominators, _ = dominators_of(blocks)
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 10 * len(blocks) + 1000))

    @functools.cache
    def best(index):  # (wanted, work, -length, the blocks from here to the end), or None where no way leads to the end
        own = blocks[index].instructions
        ends = not blocks[index].successors
        ways = [(0, 0, 0, ())] if any(map(is_end, blocks[index].successors)) or (start == 0 and ends) else []
        for successor in blocks[index].successors:
            back = successor in dominators[index]
            if successor in allowed and not is_end(successor) and not back and best(successor):
                ways.append(best(successor))
        if not ways:
            return None
        found, work, length, rest = max(ways, key=lambda way: way[:3])
        return found + (index in wanted), work + sum(map(work_of, own)), length - len(own), (index, *rest)

    way = best(start)
    return way[3] if way else ()


def own_work(blocks, loop, loops, count):
    """The sum of `count` over the instructions that belong to a loop and to none inside it."""
    inner = {index for other in loops if other.blocks < loop.blocks for index in other.blocks}
    return sum(count(instruction) for index in loop.blocks - inner for instruction in blocks[index].instructions)


def main_loop_of(blocks):
    """The loop where a kernel spends its time: the one with the most tensor instructions of its own, or with the most
    work of its own where there are none; of equals the one with the shortest turn. None where nothing loops."""
    loops = loops_of(blocks)
    for count in (is_tensor, work_of):
        counted = [(own_work(blocks, loop, loops, count), -len(turn_of(blocks, loop)), -loop.header, loop)
                   for loop in loops]
        if any(entry[0] for entry in counted):
            return max(counted, key=lambda entry: entry[:3])[3]
    return None
