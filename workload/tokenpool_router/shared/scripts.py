"""What Redis does for us in one go, in Lua. A script is atomic, bounds what it returns, and goes by Redis' own clock.

A script is sent whole each time (EVAL): a few hundred bytes, and no case of a server that does not know it yet.
"""

from typing import Final

CLOCK: Final = """
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
"""

# KEYS: members (sorted set: router id -> last beat), our numbers. ARGV: our id, our numbers, expiry in milliseconds,
# prefix of numbers' keys, most routers, most bytes of one, most bytes of all.
# Returns how many more there are than are told, then id and numbers of each other router. Who cannot be read because
# something else is at its key, or because it is too large, is told with empty numbers.
EXCHANGE: Final = (
    CLOCK
    + """
local expiry = tonumber(ARGV[3])
redis.call('SET', KEYS[2], ARGV[2], 'PX', expiry)
redis.call('ZADD', KEYS[1], now(), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now() - expiry)
redis.call('ZREMRANGEBYSCORE', KEYS[1], now() + expiry, '+inf')
redis.call('PEXPIRE', KEYS[1], expiry)
local found, bytes = {0}, 0
for _, id in ipairs(redis.call('ZREVRANGE', KEYS[1], 0, ARGV[5])) do
  local key = ARGV[4] .. id
  if id ~= ARGV[1] and #id <= 253 then
    local length = redis.pcall('STRLEN', key)
    if type(length) ~= 'number' or length > tonumber(ARGV[6]) then
      table.insert(found, id); table.insert(found, '')
    elseif length > 0 and bytes + length > tonumber(ARGV[7]) then
      found[1] = found[1] + 1
    elseif length > 0 then
      bytes = bytes + length
      table.insert(found, id); table.insert(found, redis.call('GET', key))
    end
  end
end
found[1] = found[1] + math.max(0, redis.call('ZCARD', KEYS[1]) - 1 - ARGV[5])
return found
"""
)

# KEYS: members, our numbers. ARGV: our id. The others see at once that we are gone.
LEAVE: Final = """
redis.call('DEL', KEYS[2])
return redis.call('ZREM', KEYS[1], ARGV[1])
"""

# KEYS: batches (stream), last number of this sender. ARGV: number, batch, most batches, memory in milliseconds.
# Returns how many batches wait, or -1 when there is no room: the sender keeps it. One that came already, whose answer
# was lost, is not put in again.
SEND: Final = """
local waiting = redis.call('XLEN', KEYS[1])
if tonumber(ARGV[1]) <= (tonumber(redis.call('GET', KEYS[2]) or '0') or 0) then return waiting end
if waiting >= tonumber(ARGV[3]) then return -1 end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[4])
redis.call('XADD', KEYS[1], '*', 'counts', ARGV[2])
return waiting + 1
"""

# KEYS: lock, fence, batches, table (hash: counts, fence, merged). ARGV: our token, lease in milliseconds, most batches,
# most bytes of a batch, most bytes of the table, pause between merges in milliseconds, batches that allow no pause.
# Returns nothing where somebody else merges or nothing is due; else the fence, the table, then id and batch of each.
# The fence rises with each holder. Should its key be lost, it goes on behind what was written last.
BEGIN_MERGE: Final = (
    CLOCK
    + """
local waiting = redis.call('XLEN', KEYS[3])
local merged = tonumber(redis.call('HGET', KEYS[4], 'merged') or '0') or 0
if waiting == 0 or redis.call('EXISTS', KEYS[1]) == 1 then return {} end
if now() - merged < tonumber(ARGV[6]) and now() >= merged and waiting < tonumber(ARGV[7]) then return {} end
local fence = redis.call('INCR', KEYS[2])
local written = tonumber(redis.call('HGET', KEYS[4], 'fence') or '0') or 0
if fence <= written then
  fence = written + 1
  redis.call('SET', KEYS[2], fence)
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
local counts = ''
if redis.call('HSTRLEN', KEYS[4], 'counts') <= tonumber(ARGV[5]) then
  counts = redis.call('HGET', KEYS[4], 'counts') or ''
end
local found = {fence, counts}
for _, entry in ipairs(redis.call('XRANGE', KEYS[3], '-', '+', 'COUNT', ARGV[3])) do
  local batch = ''
  if entry[2][1] == 'counts' and #entry[2][2] <= tonumber(ARGV[4]) then batch = entry[2][2] end
  table.insert(found, entry[1]); table.insert(found, batch)
end
return found
"""
)

# KEYS: as above. ARGV: our token, our fence, the new table, ids of the batches that are in it.
# Writes the table and takes the batches away, both or neither. Refused (0) once somebody newer has taken the lock, or
# anybody has written with our fence or a newer one: a fence is good for one write. Lets go of a lock that is ours.
COMMIT_MERGE: Final = (
    CLOCK
    + """
local written = tonumber(redis.call('HGET', KEYS[4], 'fence') or '0') or 0
local newest = tonumber(redis.call('GET', KEYS[2]) or '0') or 0
local fence = tonumber(ARGV[2])
if fence < newest or fence <= written then return 0 end
redis.call('HSET', KEYS[4], 'counts', ARGV[3], 'fence', ARGV[2], 'merged', now())
for index = 4, #ARGV do redis.call('XDEL', KEYS[3], ARGV[index]) end
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
"""
)

# KEYS: table. ARGV: most bytes. Returns the counts, or nothing.
READ_TABLE: Final = """
if redis.call('HSTRLEN', KEYS[1], 'counts') > tonumber(ARGV[1]) then return '' end
return redis.call('HGET', KEYS[1], 'counts') or ''
"""
