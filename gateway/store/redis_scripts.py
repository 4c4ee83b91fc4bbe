"""Lua scripts of the Redis store; Redis runs each as one transaction.

Keys begin with KEYS[1], a hash tag, so that they live on one node: ``:doc:`` and a member, a hash with data, version
and the log's bytes; ``:log:`` and a member, a list; ``:turns``, the members by their last write; ``:sizes``, the bytes
of each; ``:totals``, their sum and the last turn. Documents and logs expire by themselves, and their size is taken off
when their turn comes.
"""

from __future__ import annotations

from typing import Final

from gateway.store.bounds import BATCH

WRITTEN: Final = 0
CONFLICT: Final = -1
FULL: Final = -2

_COMMON: Final = f"""
local function at(kind, member) return KEYS[1] .. kind .. (member or '') end

local function size(member) return tonumber(redis.call('HGET', at(':sizes'), member) or 0) end

local function remove(member)
    redis.call('UNLINK', at(':doc:', member), at(':log:', member))  -- first: allowed where memory is short
    redis.call('HINCRBY', at(':totals'), 'bytes', 0 - size(member))  -- Redis knows no -0
    redis.call('HDEL', at(':sizes'), member)
    redis.call('ZREM', at(':turns'), member)
end

-- whether there may be more to remove, 1 or 0, because none of these transactions takes long; how many were removed;
-- and the bytes that are left
local function trim(most)
    for removed = 0, {BATCH} do
        local oldest = redis.call('ZRANGE', at(':turns'), 0, 0)[1]
        local total = tonumber(redis.call('HGET', at(':totals'), 'bytes') or 0)
        if removed == {BATCH} then return {{1, removed, total}} end
        if not oldest then return {{0, removed, total}} end
        if total <= most and redis.call('EXISTS', at(':doc:', oldest)) == 1 then return {{0, removed, total}} end
        remove(oldest)
    end
end

local function written(member, bytes, age)
    redis.call('HINCRBY', at(':totals'), 'bytes', bytes - size(member))
    redis.call('HSET', at(':sizes'), member, bytes)
    redis.call('ZADD', at(':turns'), redis.call('HINCRBY', at(':totals'), 'turn', 1), member)
    redis.call('PEXPIRE', at(':doc:', member), age)
    redis.call('PEXPIRE', at(':log:', member), age)
end
"""

PUT: Final = f"""{_COMMON}
local largest, most, age = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local versions, sizes = {{}}, {{}}
for first = 4, #ARGV, 4 do  -- member, data, expected version, bytes; all are looked at before the first is written
    local known = redis.call('HMGET', at(':doc:', ARGV[first]), 'version', 'log')
    local version, expected = tonumber(known[1] or 0), tonumber(ARGV[first + 2])
    if expected >= 0 and expected ~= version then return {{{CONFLICT}, (first - 4) / 4}} end
    sizes[first] = tonumber(ARGV[first + 3]) + tonumber(known[2] or 0)
    if sizes[first] > largest then return {{{FULL}}} end
    versions[#versions + 1] = version + 1
end
for first = 4, #ARGV, 4 do
    local member, version = ARGV[first], versions[first / 4]
    if version == 1 then redis.call('UNLINK', at(':log:', member)) end
    redis.call('HSET', at(':doc:', member), 'data', ARGV[first + 1], 'version', version)
    written(member, sizes[first], age)
end
return {{{WRITTEN}, trim(most), unpack(versions)}}
"""

APPEND: Final = f"""{_COMMON}
local largest, most, age = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local member, added = ARGV[4], tonumber(ARGV[5])
local doc, log = at(':doc:', member), at(':log:', member)
if redis.call('EXISTS', doc) == 0 then return {{{CONFLICT}, 0}} end
local bytes = size(member) + added
if bytes > largest then return {{{FULL}}} end
for first = 6, #ARGV, 1000 do  -- Lua's stack is small
    redis.call('RPUSH', log, unpack(ARGV, first, math.min(first + 999, #ARGV)))
end
redis.call('HINCRBY', doc, 'log', added)
written(member, bytes, age)
return {{{WRITTEN}, trim(most), redis.call('LLEN', log)}}
"""

DELETE: Final = f"""{_COMMON}
local there = redis.call('EXISTS', at(':doc:', ARGV[1]))
remove(ARGV[1])
return there
"""

TRIM: Final = f"""{_COMMON}
redis.call('HINCRBY', at(':totals'), 'bytes', 0)  -- a Redis that takes no writes is found now
return trim(tonumber(ARGV[1]))
"""
