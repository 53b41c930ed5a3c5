//! The scripts that Redis runs, each as one step and on keys of one slot.

use std::sync::LazyLock;

use redis::Script;

pub(super) struct Scripts {
    pub(super) claim: Script,
    pub(super) release: Script,
    pub(super) locate: Script,
    pub(super) heartbeat: Script,
    pub(super) leave: Script,
    pub(super) replicas: Script,
    pub(super) take_seat: Script,
    pub(super) leave_seat: Script,
    pub(super) seats: Script,
    pub(super) seat_all: Script,
    pub(super) counted: Script,
    pub(super) home: Script,
    pub(super) move_home: Script,
    pub(super) forget_home: Script,
    pub(super) note_sandbox: Script,
    pub(super) sandbox: Script,
}

/// A claim of the same activation again keeps its location from being forgotten.
const CLAIM: &str = r"
local epoch, replica = unpack(redis.call('HMGET', KEYS[1], 'epoch', 'replica'))
if not epoch or epoch < ARGV[1] then
    redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'replica', ARGV[2])
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
elseif epoch == ARGV[1] and replica == ARGV[2] then
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
";

const RELEASE: &str = r"
local epoch, replica = unpack(redis.call('HMGET', KEYS[1], 'epoch', 'replica'))
if epoch == ARGV[1] and replica == ARGV[2] then
    redis.call('DEL', KEYS[1])
end
";

const LOCATE: &str = r"
return redis.call('HMGET', KEYS[1], 'epoch', 'replica')
";

/// The sorted set holds when each lease ends, by this server's clock. Replicas that are gone are
/// cleared out by those that live, some at a time.
const HEARTBEAT: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, 100)) do
    redis.call('ZREM', KEYS[1], gone)
    redis.call('HDEL', KEYS[2], gone)
end
local until_then = redis.call('ZSCORE', KEYS[1], ARGV[1])
redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
return until_then and tonumber(until_then) > now and 1 or 0
";

const LEAVE: &str = r"
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
";

const REPLICAS: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local live = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. string.format('%.0f', now), '+inf', 'LIMIT', 0, 1000)
if #live == 0 then
    return {}
end
return redis.call('HMGET', KEYS[2], unpack(live))
";

/// The sorted set holds since when each run has its seat, by this server's clock. The mark says when the seats were last
/// counted, or that the count was whole; it goes whenever the seats go. Answers with -1 for a lost count and -2 for a whole
/// one.
const TAKE_SEAT: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local mark = redis.call('GET', KEYS[2])
local has = redis.call('ZSCORE', KEYS[1], ARGV[1])
local taken = redis.call('ZCARD', KEYS[1])
if not has and mark and taken < tonumber(ARGV[2]) then
    redis.call('ZADD', KEYS[1], now, ARGV[1])
    has, taken = true, taken + 1
end
local ago = -1
if mark == 'whole' then
    ago = -2
elseif mark then
    ago = math.max(0, now - tonumber(mark))
end
return { has and 1 or 0, taken, ago }
";

const LEAVE_SEAT: &str = r"
redis.call('ZREM', KEYS[1], ARGV[1])
";

const SEATS: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local rows = redis.call('ZRANGE', KEYS[1], ARGV[1], ARGV[2], 'WITHSCORES')
local seats = {}
for at = 1, #rows, 2 do
    seats[at] = rows[at]
    seats[at + 1] = string.format('%.0f', math.max(0, now - tonumber(rows[at + 1])))
end
return seats
";

const SEAT_ALL: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, run in ipairs(ARGV) do
    redis.call('ZADD', KEYS[1], 'NX', now, run)
end
";

const COUNTED: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('SET', KEYS[2], ARGV[1] == '1' and 'whole' or string.format('%.0f', now))
";

const HOME: &str = r"
return redis.call('HGET', KEYS[1], ARGV[1])
";

/// A generation is a count of moves: the numbers of Lua hold it.
const MOVE_HOME: &str = r"
local known = redis.call('HGET', KEYS[1], ARGV[1])
if known and cjson.decode(known).generation >= tonumber(ARGV[2]) then
    return known
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return ARGV[3]
";

const FORGET_HOME: &str = r"
redis.call('HDEL', KEYS[1], ARGV[1])
";

const NOTE_SANDBOX: &str = r"
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
";

const SANDBOX: &str = r"
return redis.call('GET', KEYS[1])
";

impl Scripts {
    pub(super) fn get() -> &'static Self {
        static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
            claim: Script::new(CLAIM),
            release: Script::new(RELEASE),
            locate: Script::new(LOCATE),
            heartbeat: Script::new(HEARTBEAT),
            leave: Script::new(LEAVE),
            replicas: Script::new(REPLICAS),
            take_seat: Script::new(TAKE_SEAT),
            leave_seat: Script::new(LEAVE_SEAT),
            seats: Script::new(SEATS),
            seat_all: Script::new(SEAT_ALL),
            counted: Script::new(COUNTED),
            home: Script::new(HOME),
            move_home: Script::new(MOVE_HOME),
            forget_home: Script::new(FORGET_HOME),
            note_sandbox: Script::new(NOTE_SANDBOX),
            sandbox: Script::new(SANDBOX),
        });
        &SCRIPTS
    }
}
