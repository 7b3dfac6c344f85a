package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store/journal"
)

// counters are what the limits count.
type counters struct{ *conn }

// The state of limits, and the counts of what was used. Package limits says what it means.

const (
	// usageDays is how long a day's counts are kept.
	usageDays = 92
	usageTTL  = usageDays * 24 * time.Hour
	// markTTL is how long the CPU time that was counted of a sandbox is known after it was last told: longer than
	// any takeover.
	markTTL = time.Hour
	// MaxUsageDays bounds one question for counts.
	MaxUsageDays = usageDays
)

// A CheckKind says how a limit counts.
type CheckKind string

const (
	CheckRate CheckKind = "rate" // a bucket of Max tokens, one more each Every
	CheckHeld CheckKind = "held" // at most Max members at a time
	CheckDay  CheckKind = "day"  // at most Max of Counter in a day
)

// Check is one limit that a call has to keep to.
type Check struct {
	Kind  CheckKind
	Limit string // its name
	Scope string // of whom: "t", "u:USER", "k:KEY"
	Max   int64
	Every time.Duration // CheckRate
	// Member takes a place (CheckHeld) until it is given back, or not told of for TTL. Until is when it is free at the
	// latest; zero: unknown.
	Member string
	Until  time.Time
	TTL    time.Duration
	// Counter of the usage of Day, to which Add is added (CheckDay).
	Counter string
	Day     string
	Add     int64
}

// Held is a place that was taken by a Check.
type Held struct {
	Limit, Scope, Member string
	Until                time.Time
}

// Refusal says which check failed.
type Refusal struct {
	Check int // its index
	Used  int64
	Wait  time.Duration // until it is free again; 0: unknown
}

func (h Held) member() string { return memberOf(h.Member, h.Until) }

func memberOf(id string, until time.Time) string {
	if until.IsZero() {
		return id + " 0"
	}
	return id + " " + strconv.FormatInt(until.UnixMilli(), 10)
}

// admitScript frees places, runs all checks, and takes what they ask for when all of them pass. ARGV: the
// server's time, the number of checks, six words for each (kind, index of its key, max, x, field, ttl). Then
// come pairs of a key's index and a member to free. x is the milliseconds of one token, or what is added.
var admitScript = redis.NewScript(`
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + tonumber(t[2]) / 1000
local theirs, n = tonumber(ARGV[1]), tonumber(ARGV[2])
for i = 3 + n * 6, #ARGV, 2 do redis.call('ZREM', KEYS[tonumber(ARGV[i])], ARGV[i + 1]) end
local function check(i)
  local at = 3 + (i - 1) * 6
  return ARGV[at], KEYS[tonumber(ARGV[at + 1])], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), ARGV[at + 4], tonumber(ARGV[at + 5])
end
local tats = {}
for i = 1, n do
  local kind, key, max, x, field = check(i)
  if kind == 'rate' then
    local tat = tonumber(redis.call('GET', key) or '0')
    if tat < now then tat = now end
    if tat > now + max * x then tat = now + max * x end
    local wait = tat + x - now - max * x
    if wait > 0.01 then
      return {tostring(i), string.format('%.0f', math.ceil((tat - now) / x)), string.format('%.0f', math.ceil(wait))}
    end
    tats[i] = tat + x
  elseif kind == 'held' then
    redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.0f', now))
    local used = redis.call('ZCARD', key)
    if used >= max and not redis.call('ZSCORE', key, field) then
      local free = 0
      for _, member in ipairs(redis.call('ZRANGE', key, 0, -1)) do
        local till = tonumber(string.match(member, ' (%d+)$') or '0')
        if till > 0 and (free == 0 or till < free) then free = till end
      end
      local wait = 0
      if free > 0 then wait = math.max(free - theirs, 1) end
      return {tostring(i), tostring(used), string.format('%.0f', wait)}
    end
  else
    local used = tonumber(redis.call('HGET', key, field) or '0')
    if used >= max then return {tostring(i), string.format('%.0f', used), '0'} end
  end
end
for i = 1, n do
  local kind, key, max, x, field, ttl = check(i)
  if kind == 'rate' then
    redis.call('SET', key, string.format('%.3f', tats[i]), 'PX', string.format('%.0f', math.ceil(tats[i] - now) + 1000))
  elseif kind == 'held' then
    redis.call('ZADD', key, string.format('%.0f', now + ttl), field)
    redis.call('PEXPIRE', key, string.format('%.0f', ttl))
  elseif x > 0 then
    redis.call('HINCRBY', key, field, string.format('%.0f', x))
    redis.call('PEXPIRE', key, string.format('%.0f', ttl))
  end
end
return {'0', '0', '0'}`)

// keyList numbers the keys from 1.
type keyList struct {
	keys  []string
	index map[string]int
}

func (l *keyList) of(key string) int {
	n, ok := l.index[key]
	if !ok {
		l.keys = append(l.keys, key)
		n = len(l.keys)
		if l.index == nil {
			l.index = map[string]int{}
		}
		l.index[key] = n
	}
	return n
}

// Admit takes all that the checks ask for, or nothing: then it says which of them failed. back are places to free
// before; giving one back again does nothing. It is one round trip. refused is nil when the call may go on.
func (s counters) Admit(ctx context.Context, tenant string, checks []Check, back []Held) (refused *Refusal, err error) {
	if err := sandbox.CheckOwnerName("tenant", tenant); err != nil {
		return nil, err
	}
	var keys keyList
	args := make([]any, 0, 2+6*len(checks)+2*len(back))
	args = append(args, time.Now().UnixMilli(), len(checks))
	for _, c := range checks {
		switch c.Kind {
		case CheckRate:
			args = append(args, string(c.Kind), keys.of(rateKey(tenant, c.Limit, c.Scope)), c.Max, float64(c.Every)/float64(time.Millisecond), "", 0)
		case CheckHeld:
			args = append(args, string(c.Kind), keys.of(heldKey(tenant, c.Limit, c.Scope)), c.Max, 0, memberOf(c.Member, c.Until), c.TTL.Milliseconds())
		case CheckDay:
			args = append(args, string(c.Kind), keys.of(usageKey(tenant, c.Day)), c.Max, c.Add, usageField(c.Scope, c.Counter), usageTTL.Milliseconds())
		default:
			return nil, sandbox.Errorf(sandbox.Internal, "a check of the kind %q", c.Kind)
		}
	}
	for _, h := range back {
		args = append(args, keys.of(heldKey(tenant, h.Limit, h.Scope)), h.member())
	}
	return s.admit(ctx, keys.keys, args)
}

// AdmitShared is Admit of rates that all tenants share. Their scopes say whose they are.
func (s counters) AdmitShared(ctx context.Context, rates []Check) (refused *Refusal, err error) {
	var keys keyList
	args := make([]any, 0, 2+6*len(rates))
	args = append(args, time.Now().UnixMilli(), len(rates))
	for _, c := range rates {
		if c.Kind != CheckRate {
			return nil, sandbox.Errorf(sandbox.Internal, "a shared check of the kind %q", c.Kind)
		}
		args = append(args, string(c.Kind), keys.of(sharedRateKey(c.Limit, c.Scope)), c.Max, float64(c.Every)/float64(time.Millisecond), "", 0)
	}
	return s.admit(ctx, keys.keys, args)
}

func (s counters) admit(ctx context.Context, keys []string, args []any) (*Refusal, error) {
	ctx, cancel := deadline(ctx)
	defer cancel()
	answer, err := admitScript.Run(ctx, s.rdb, keys, args...).StringSlice()
	if err != nil {
		return nil, failure(err)
	}
	var n [3]int64
	for i, text := range answer {
		if n[i], err = strconv.ParseInt(text, 10, 64); err != nil || len(answer) != len(n) {
			return nil, sandbox.Errorf(sandbox.Internal, "the state store sent an answer of the wrong shape")
		}
	}
	if n[0] == 0 {
		return nil, nil
	}
	return &Refusal{Check: int(n[0] - 1), Used: n[1], Wait: time.Duration(n[2]) * time.Millisecond}, nil
}

// keepHeldScript extends places and frees others. ARGV: the time that they are held on to, the number of the
// former, and for each place the index of its key and the member.
var keepHeldScript = redis.NewScript(`
local t = redis.call('TIME')
local ttl, kept = tonumber(ARGV[1]), tonumber(ARGV[2])
local score = string.format('%.0f', tonumber(t[1]) * 1000 + tonumber(t[2]) / 1000 + ttl)
for i = 3, #ARGV, 2 do
  local key = KEYS[tonumber(ARGV[i])]
  if i < 3 + kept * 2 then
    redis.call('ZADD', key, score, ARGV[i + 1])
    redis.call('PEXPIRE', key, ARGV[1])
  else
    redis.call('ZREM', key, ARGV[i + 1])
  end
end
return 1`)

// ExtendHeld extends places of a tenant by ttl, whatever the limits say, and frees others.
func (s counters) ExtendHeld(ctx context.Context, tenant string, keep, back []Held, ttl time.Duration) error {
	var keys keyList
	args := []any{ttl.Milliseconds(), len(keep)}
	for _, list := range [][]Held{keep, back} {
		for _, h := range list {
			args = append(args, keys.of(heldKey(tenant, h.Limit, h.Scope)), h.member())
		}
	}
	if len(keys.keys) == 0 {
		return nil
	}
	ctx, cancel := deadline(ctx)
	defer cancel()
	return failure(keepHeldScript.Run(ctx, s.rdb, keys.keys, args...).Err())
}

// CountHeld is how many places are taken now.
func (s counters) CountHeld(ctx context.Context, tenant, limit, scope string) (int64, error) {
	ctx, cancel := deadline(ctx)
	defer cancel()
	n, err := s.rdb.ZCount(ctx, heldKey(tenant, limit, scope), strconv.FormatInt(time.Now().UnixMilli(), 10), "+inf").Result()
	return n, failure(err)
}

// Counts are amounts by scope and counter: "t", "u:USER" or "k:KEY"; "execs", "cpu_ms" …
type Counts map[string]map[string]int64

// CPUMark is the CPU time that a sandbox has used since it was made. What is above the time that was counted of it
// before, by any server, is counted now.
type CPUMark struct {
	Sandbox sandbox.ID
	Total   time.Duration
	// Known is what this server has seen counted before, for when no other server knows; negative: it does not know either,
	// and then nothing is counted now.
	Known  time.Duration
	Scopes []string // of whom it is
}

// countScript adds to the counts of a day, once for each number that a server sets on a batch. ARGV: server, number, TTL of
// the day, TTL of marks, the number of amounts; pairs of a field and an amount; then for each mark its total, what is known,
// the number of its fields, and those. KEYS: the day, then the marks. It answers with fields and what they are now.
var countScript = redis.NewScript(`
local me = '~' .. ARGV[1]
if tonumber(ARGV[2]) <= tonumber(redis.call('HGET', KEYS[1], me) or '0') then return {} end
redis.call('HSET', KEYS[1], me, ARGV[2])
local now = {}
local function add(field, amount)
  now[#now + 1] = field
  now[#now + 1] = tostring(redis.call('HINCRBY', KEYS[1], field, amount))
end
local at, n = 6, tonumber(ARGV[5])
for i = 1, n do
  add(ARGV[at], ARGV[at + 1])
  at = at + 2
end
for k = 2, #KEYS do
  local total, known, fields = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local was = tonumber(redis.call('GET', KEYS[k]) or ARGV[at + 1])
  if was < 0 then was = total end
  if total > was then
    for f = 1, fields do add(ARGV[at + 2 + f], string.format('%.0f', total - was)) end
  end
  redis.call('SET', KEYS[k], string.format('%.0f', math.max(total, was)), 'PX', ARGV[4])
  at = at + 3 + fields
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return now`)

// cpuCounter is the counter that marks count in.
const cpuCounter = "cpu_ms"

// Count adds to the counts of a tenant's day. server and batch name what is added: told again, it is not added again;
// a server's batches of one day have rising numbers. In embedded mode the counts are on disk when it returns.
func (s counters) Count(ctx context.Context, tenant, day, server string, batch uint64, c Counts, marks []CPUMark) error {
	keys := []string{usageKey(tenant, day)}
	amounts := 0
	args := []any{server, batch, usageTTL.Milliseconds(), markTTL.Milliseconds(), 0}
	for scope, counters := range c {
		for counter, n := range counters {
			args = append(args, usageField(scope, counter), n)
			amounts++
		}
	}
	args[4] = amounts
	for _, m := range marks {
		keys = append(keys, cpuMarkKey(tenant, m.Sandbox))
		known := m.Known.Milliseconds()
		if m.Known < 0 {
			known = -1
		}
		args = append(args, m.Total.Milliseconds(), known, len(m.Scopes))
		for _, scope := range m.Scopes {
			args = append(args, usageField(scope, cpuCounter))
		}
	}
	ctx, cancel := deadline(ctx)
	defer cancel()
	now, err := countScript.Run(ctx, s.rdb, keys, args...).StringSlice()
	if err != nil || s.journal == nil {
		return failure(err)
	}
	latest := map[string]string{} // a field may come twice
	for i := 0; i+1 < len(now); i += 2 {
		latest[now[i]] = now[i+1]
	}
	entries := make([]journal.Entry, 0, len(latest))
	for field, value := range latest {
		entries = append(entries, journal.Entry{Key: keys[0], Field: field, Value: json.RawMessage(value)})
	}
	return s.journal.Append(ctx, entries)
}

// Usage returns the counts of a tenant's days, each written 20060102: of these scopes, or of all when there are none.
func (s counters) Usage(ctx context.Context, tenant string, days, scopes, counters []string) (map[string]Counts, error) {
	if err := sandbox.CheckOwnerName("tenant", tenant); err != nil {
		return nil, err
	}
	if len(days) > MaxUsageDays {
		return nil, sandbox.Errorf(sandbox.Invalid, "%d days, at most %d", len(days), MaxUsageDays)
	}
	var fields []string
	for _, scope := range scopes {
		for _, counter := range counters {
			fields = append(fields, usageField(scope, counter))
		}
	}
	ctx, cancel := deadline(ctx)
	defer cancel()
	some, every := make([]*redis.SliceCmd, len(days)), make([]*redis.MapStringStringCmd, len(days))
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, day := range days {
			if len(fields) > 0 {
				some[i] = p.HMGet(ctx, usageKey(tenant, day), fields...)
			} else {
				every[i] = p.HGetAll(ctx, usageKey(tenant, day))
			}
		}
		return nil
	})
	if err != nil {
		return nil, failure(err)
	}
	all := map[string]Counts{}
	for i, day := range days {
		found := map[string]string{}
		if len(fields) == 0 {
			found = every[i].Val()
		} else {
			for k, v := range some[i].Val() {
				if text, ok := v.(string); ok {
					found[fields[k]] = text
				}
			}
		}
		if c := countsOf(found); len(c) > 0 {
			all[day] = c
		}
	}
	return all, nil
}

func countsOf(fields map[string]string) Counts {
	c := Counts{}
	for field, text := range fields {
		at := strings.LastIndexByte(field, '|') // a user's name may have one
		n, err := strconv.ParseInt(text, 10, 64)
		if at < 0 || err != nil { // "~SERVER"
			continue
		}
		scope, counter := field[:at], field[at+1:]
		if c[scope] == nil {
			c[scope] = map[string]int64{}
		}
		c[scope][counter] = n
	}
	return c
}

func usageField(scope, counter string) string { return scope + "|" + counter }

// oldUsage reports whether a record of the journal holds a count that is not asked for any more.
func oldUsage(key string, now time.Time) bool {
	_, day, ok := strings.Cut(key, "}:usage:")
	return ok && day < now.Add(-usageTTL).Format(usageDay)
}

// usageDay is how a day is written in a key.
const usageDay = "20060102"

// Day is the day of a time, in UTC, as the counts have it.
func Day(t time.Time) string { return t.UTC().Format(usageDay) }

// DayStart is the beginning of a day.
func DayStart(day string) (time.Time, error) {
	t, err := time.ParseInLocation(usageDay, day, time.UTC)
	if err != nil {
		return t, fmt.Errorf("day %q: %w", day, err)
	}
	return t, nil
}
