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
redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
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

impl Scripts {
    pub(super) fn get() -> &'static Self {
        static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
            claim: Script::new(CLAIM),
            release: Script::new(RELEASE),
            locate: Script::new(LOCATE),
            heartbeat: Script::new(HEARTBEAT),
            leave: Script::new(LEAVE),
            replicas: Script::new(REPLICAS),
        });
        &SCRIPTS
    }
}
