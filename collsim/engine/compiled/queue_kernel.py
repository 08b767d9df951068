"""The compiled event queue: one event a station, handled in the order (time, number of the node).

Every node has at most one event in the queue. Three words hold what is known of it::

    time    while it waits: the latest time that its predecessors have asked for; later: its next arrival
    tail    when its whole message has arrived
    links   low half: the predecessors that are not handled yet, later the stations that it has left (-1 when handled);
            high half: the node after it in its list (-1 at the end)

Few events are in the heap. Those that come out of handling with the same delay, or out of the same station, mostly
come in order; they form a list, of which only the head is in the heap. An event that would break the order of both its
lists is in the heap by itself.
"""

from __future__ import annotations

from typing import Any

from collsim.compiling import kernel
from collsim.engine.outcome import LARGEST_TIME

__all__ = [
    "CURSOR", "DELAYS", "DONE", "FULL", "HANDLED", "LATEST", "LEFT", "LIMIT", "LIST", "MORE", "NODE", "NOW", "NUMBERS",
    "SIZE", "TOO_LONG", "WAITED", "run",
]  # fmt: skip

SIZE, HANDLED, LATEST, CURSOR, LIMIT, LEFT, NOW, NUMBERS = range(8)
"""Where `run` keeps its numbers: size of the heap, handled nodes, latest end; the nodes ``CURSOR:LIMIT`` are still to
be released at ``NOW``, none above may start; ``LEFT`` nodes below are not handled yet."""

MORE, DONE, FULL, TOO_LONG = range(4)
"""Why `run` came back."""

NODE = 3
"""Words of a node: time, tail, links."""

LIST = 4
"""Words of a list: number (-1 if it is empty) and time of its last event, and two for what it is about."""

DELAY, FREE, WAITED = 2, 2, 3
"""The delay that its events have in common; for a station when it is free, and the longest wait for it."""

DELAYS = 256
"""Lists by delay; after them come one for each station, one for what is released, and one that stays empty."""

LOW = 2**32 - 1
HASH = 0x9E3779B1  # bits 24 to 31 of a product with it tell delays apart


@kernel
def lesser(heap: Any, one: int, other: int) -> int:
    """Return the lesser of two entries, without a branch that would be predicted wrongly half of the time."""
    time, other_time = heap[2 * one], heap[2 * other]
    goes_first = (other_time < time) | ((other_time == time) & (heap[2 * other + 1] < heap[2 * one + 1]))
    return int(one + (other - one) * goes_first)


@kernel
def sift_down(heap: Any, size: int, time: int, key: int) -> None:
    """Put an entry in place of the top."""
    at = 0
    while True:
        best = 4 * at + 1
        if best + 3 < size:
            best = lesser(heap, lesser(heap, best, best + 1), lesser(heap, best + 2, best + 3))
        elif best < size:
            for child in range(best + 1, size):
                best = lesser(heap, best, child)
        else:
            break
        best_time, best_key = heap[2 * best], heap[2 * best + 1]
        if time < best_time or (time == best_time and key < best_key):
            break
        heap[2 * at], heap[2 * at + 1] = best_time, best_key
        at = best
    heap[2 * at], heap[2 * at + 1] = time, key


@kernel
def sift_up(heap: Any, at: int, time: int, key: int) -> None:
    """Put an entry at the end."""
    while at > 0:
        parent = (at - 1) >> 2
        above, above_key = heap[2 * parent], heap[2 * parent + 1]
        if above < time or (above == time and above_key < key):
            break
        heap[2 * at], heap[2 * at + 1] = above, above_key
        at = parent
    heap[2 * at], heap[2 * at + 1] = time, key


@kernel
def rank(word: int, bit: int) -> int:
    """Return the number of nodes with edges before one, from a word of `Successors`."""
    below = word & ((1 << bit) - 1)
    below = below - ((below >> 1) & 0x55555555)
    below = (below & 0x33333333) + ((below >> 2) & 0x33333333)
    below = (below + (below >> 4)) & 0x0F0F0F0F
    return int((word >> 32) + (((below * 0x01010101) & LOW) >> 24))


@kernel
def append(nodes: Any, lists: Any, where: int, time: int, node: int, ordered: bool) -> int:
    """Put an event behind the last of a list and return the list, or -1 if it is empty or would lose its order."""
    last, last_time = lists[where], lists[where + 1]
    if last < 0 or (ordered and (time < last_time or (time == last_time and node < last))):
        return -1
    at = NODE * last + 2
    nodes[at] = (node << 32) | (nodes[at] & LOW)
    lists[where], lists[where + 1] = node, time
    return where


@kernel
def ask(nodes: Any, node: int, time: int, limit: int, chain: int) -> int:
    """Tell a node that one more predecessor is handled, and put it before a chain if it was the last."""
    at = NODE * node
    if time > nodes[at]:
        nodes[at] = time
    nodes[at + 2] -= 1
    if nodes[at + 2] == 0 and node < limit:
        nodes[at + 2] = chain << 32
        chain = node
    return chain


@kernel
def phase_of(first: Any, node: int) -> int:
    """Return the phase that a node belongs to."""
    low, high = 0, len(first) - 1
    while high - low > 1:
        middle = (low + high) >> 1
        if first[middle] <= node:
            low = middle
        else:
            high = middle
    return low


@kernel
def end_of_step(node: int, first: Any, row_ptr: Any, step: Any) -> int:
    """Return the end of the nodes of the same step that begin with one."""
    phase = phase_of(first, node)
    low, high = row_ptr[phase], row_ptr[phase + 1]
    row = low + (node - first[phase]) % (high - low)
    after = row + 1
    while after < high and step[after] == step[row]:
        after += 1
    return int(node + after - row)


@kernel
def run(
    budget: int,
    shared: bool,
    barrier: bool,
    transfers: int,
    numbers: Any,
    nodes: Any,
    heap: Any,
    lists: Any,
    first: Any,
    row_ptr: Any,
    step: Any,
    varies: Any,
    size_class: Any,
    chunk_base: Any,
    chunk_rel: Any,
    chunk_shift: Any,
    chunk_window: Any,
    chunk_class: Any,
    busy: Any,
    route: Any,
    route_ptr: Any,
    visits: Any,
    groups: int,
    out_most: int,
    out_ptr: Any,
    out_offset: Any,
    out_lag: Any,
    edge_word: Any,
    edge_ptr: Any,
    edge_node: Any,
    edge_lag: Any,
    row_visit: Any,
    phase_visit: Any,
    ready_at: Any,
    start_at: Any,
    end_at: Any,
    visit_start: Any,
    visit_end: Any,
) -> int:
    """Handle events until the budget is used up, the heap may be too small, or there are none left."""
    count = len(nodes) // NODE
    capacity = len(heap) // 2
    released = len(lists) // LIST - 2
    nowhere = released + 1
    records = len(ready_at) > 0
    size, handled, latest = numbers[SIZE], numbers[HANDLED], numbers[LATEST]
    cursor, limit, left, now = numbers[CURSOR], numbers[LIMIT], numbers[LEFT], numbers[NOW]
    phase, phase_first, phase_end, low, rows, inverse, moves = 0, 0, 0, 0, 1, 1.0, False
    code = MORE
    while budget > 0:
        if size + out_most + 2 > capacity:
            code = FULL
            break
        budget -= 1
        chain = -1
        hole = False
        if cursor < limit:  # release the nodes of a step (or all at the start) that wait for nothing else
            node = cursor
            cursor += 1
            at = NODE * node
            if nodes[at] < now:
                nodes[at] = now
            if nodes[at + 2] == 0:
                nodes[at + 2] = -1 << 32
                chain = node
            here = released if nodes[at] == now else nowhere
        elif size == 0:
            if not (barrier and left == 0 and limit < count):
                code = DONE
                break
            now = latest
            cursor = limit
            limit = end_of_step(cursor, first, row_ptr, step)
            left = limit - cursor
            continue
        else:
            now = heap[0]
            node = heap[1] >> 32
            current = LIST * (heap[1] & LOW)
            at = NODE * node
            tail = nodes[at + 1]
            hop = nodes[at + 2] & LOW
            following = nodes[at + 2] >> 32
            if following >= 0:
                sift_down(heap, size, nodes[NODE * following], following << 32 | (heap[1] & LOW))
            else:
                lists[current] = -1
                hole = True
            if not phase_first <= node < phase_end:
                phase = phase_of(first, node)
                phase_first, phase_end = first[phase], first[phase + 1]
                low, rows, moves = row_ptr[phase], row_ptr[phase + 1] - row_ptr[phase], varies[phase]
                inverse = 1.0 / rows
            # instead of a division, which takes long; the product may fall just short of a whole number
            place = node - phase_first
            turn = int(place * inverse)
            place -= turn * rows
            if place >= rows:
                turn += 1
                place -= rows
            row = low + place
            visit = 2 * (route_ptr[route[row]] + hop)
            if route_ptr[route[row] + 1] * 2 == visit:  # a join, or a transfer that crosses nothing
                here = released
                free = tail = now
                last = True
                if records:
                    start_at[node] = now
            else:
                word = visits[visit]
                here = DELAYS + ((word >> 2) & 0x7FFFFFFF)
                last = (word & 1) == 1
                if moves:
                    chunk = chunk_base[row] + (chunk_rel[row] + turn * chunk_shift[row]) % chunk_window[row]
                    kind = chunk_class[chunk]
                else:
                    kind = size_class[row]
                start = now
                station = LIST * here
                if shared and lists[station + FREE] > now:
                    start = lists[station + FREE]
                    if start - now > lists[station + WAITED]:
                        lists[station + WAITED] = start - now
                free = start + busy[kind, word >> 33]
                if shared:
                    lists[station + FREE] = free
                if tail < free:
                    tail = free
                if records:
                    if hop == 0:
                        start_at[node] = start
                    record = phase_visit[phase] + turn * (row_visit[low + rows] - row_visit[low])
                    record += row_visit[row] - row_visit[low] + hop
                    visit_start[record] = start
                    visit_end[record] = tail
                tail += visits[visit + 1]
                if not last:
                    nodes[at] = start + visits[visit + 1] if word & 2 else tail
                    nodes[at + 1] = tail
                    nodes[at + 2] = (-1 << 32) | (hop + 1)
                    chain = node
            if tail >= LARGEST_TIME:
                code = TOO_LONG
                break
            if last:
                nodes[at + 2] = -1
                handled += 1
                left -= 1
                if node < transfers:
                    latest = max(latest, tail)
                    if records:
                        end_at[node] = tail
            for ended in range(2):
                if not (last if ended else hop == 0):
                    continue
                time = tail if ended else free
                if ended or groups == 2:
                    index = groups * row + ended - (groups == 1)
                    for out in range(out_ptr[index + 1] - 1, out_ptr[index] - 1, -1):
                        if node + out_offset[out] < phase_end:
                            then = time + out_lag[out] if len(out_lag) else time
                            chain = ask(nodes, node + out_offset[out], then, limit, chain)
                if len(edge_word) and (edge_word[node >> 5] >> (node & 31)) & 1:
                    index = 2 * rank(edge_word[node >> 5], node & 31) + ended
                    for out in range(edge_ptr[index + 1] - 1, edge_ptr[index] - 1, -1):
                        chain = ask(nodes, edge_node[out], time + edge_lag[out], limit, chain)
        while chain >= 0:
            node = chain
            at = NODE * node
            time = nodes[at]
            chain = nodes[at + 2] >> 32
            if records and nodes[at + 2] & LOW == 0:
                ready_at[node] = time
            nodes[at + 2] |= -1 << 32
            delay = time - now
            by_station = LIST * here
            # without stations that are shared the order is of no account, and one list will do
            by_delay = LIST * (((delay * HASH) >> 24) & (DELAYS - 1) if shared else released)
            where = -1
            if lists[by_delay + DELAY] == delay or not shared:
                where = append(nodes, lists, by_delay, time, node, shared)
            if where < 0:
                where = append(nodes, lists, by_station, time, node, True)
            if where < 0:
                if lists[by_delay] < 0:
                    where = by_delay
                    lists[where + DELAY] = delay
                elif lists[by_station] < 0:
                    where = by_station
                else:
                    where = LIST * nowhere
                key = (node << 32) | (where // LIST)
                if hole:
                    hole = False
                    sift_down(heap, size, time, key)
                else:
                    sift_up(heap, size, time, key)
                    size += 1
                if where != LIST * nowhere:
                    lists[where], lists[where + 1] = node, time
        if hole:
            size -= 1
            if size:
                sift_down(heap, size, heap[2 * size], heap[2 * size + 1])
    numbers[SIZE], numbers[HANDLED], numbers[LATEST] = size, handled, latest
    numbers[CURSOR], numbers[LIMIT], numbers[LEFT], numbers[NOW] = cursor, limit, left, now
    return code
