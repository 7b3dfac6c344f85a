package store

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store/journal"
)

// approvalRecords are requests for approval, and what people granted.
type approvalRecords struct{ *conn }

// Bounds of requests for approval. Open ones are pending, or decided and not used yet.
const (
	MaxOpenApprovals       = 1000 // of a tenant
	MaxOpenApprovalsUser   = 200
	MaxOpenApprovalsThread = 64
	// maxKeptApprovals is how many requests of a tenant are kept. The oldest finished ones go first; the
	// audit log has all.
	maxKeptApprovals = 2000
	approvalPage     = 200
	// maxGrants bounds what a thread has been given for good.
	maxGrants = 1000
)

// ApprovalRecord is a request for approval as it is kept.
type ApprovalRecord struct {
	sandbox.Approval
	// Waiter is the server whose caller waits; "": none does any more.
	Waiter string `json:"waiter,omitempty"`
	// SkillDigest is that of the files of the skill; "": it is about none.
	SkillDigest string `json:"skill_digest,omitempty"`
}

// open reports whether something may still become of a request.
func (a *ApprovalRecord) open() bool {
	return a.State == sandbox.ApprovalPending ||
		(a.State == sandbox.ApprovalApproved || a.State == sandbox.ApprovalDenied) && a.Used == nil && time.Now().Before(a.ExpiresAt)
}

// openMember names a request among the open ones, so that those of a user and of a thread lie together.
func (a *ApprovalRecord) openMember() string { return a.User + ":" + a.Thread + ":" + a.ID }

func (a *ApprovalRecord) place() place {
	return place{key: approvalsKey(a.Tenant), field: a.ID, index: approvalsKey(a.Tenant) + ":index"}
}

// addApprovalScript keeps a new request, unless too many are open. KEYS: requests, index, open ones.
var addApprovalScript = redis.NewScript(`
local function count(prefix) return redis.call('ZLEXCOUNT', KEYS[3], '[' .. prefix .. ':', '(' .. prefix .. ';') end
if count(ARGV[4]) >= tonumber(ARGV[5]) then return 'thread' end
if count(ARGV[6]) >= tonumber(ARGV[7]) then return 'user' end
if redis.call('ZCARD', KEYS[3]) >= tonumber(ARGV[8]) then return 'tenant' end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[2], 0, ARGV[1])
redis.call('ZADD', KEYS[3], 0, ARGV[3])
return ''`)

// changeApprovalScript replaces a request that is as the caller saw it; with ARGV[5] it is closed.
var changeApprovalScript = redis.NewScript(`
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
if ARGV[5] == 'over' then redis.call('ZREM', KEYS[3], ARGV[4]) end
return 1`)

// AddApproval keeps a new request. QuotaExceeded: too many of the thread, user or tenant are open.
func (s approvalRecords) AddApproval(ctx context.Context, a ApprovalRecord) error {
	if err := checkThread(sandbox.Thread{Owner: sandbox.Owner{Tenant: a.Tenant, User: a.User}, ID: a.Thread}); err != nil {
		return err
	}
	text, err := json.Marshal(a)
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the request for approval cannot be written")
	}
	p := a.place()
	err = s.change(ctx, func(ctx context.Context) (journal.Entry, error) {
		full, err := addApprovalScript.Run(ctx, s.rdb, append(p.keys(), openApprovalsKey(a.Tenant)), p.field, text, a.openMember(),
			a.User+":"+a.Thread, MaxOpenApprovalsThread, a.User, MaxOpenApprovalsUser, MaxOpenApprovals).Text()
		if err == nil && full != "" {
			return journal.Entry{}, sandbox.TooManyCalls("too many calls of this %s wait for an approval; decide some, or wait until they are denied", full)
		}
		return journal.Entry{Key: p.key, Field: p.field, Index: p.index, Value: text}, failure(err)
	})
	if err != nil {
		return err
	}
	return s.trimApprovals(ctx, a.Tenant)
}

// trimApprovals lets go of the oldest requests that are over, when there are too many.
func (s approvalRecords) trimApprovals(ctx context.Context, tenant string) error {
	excess, ids, err := s.oldApprovals(ctx, tenant)
	if err != nil || excess <= 0 {
		return err
	}
	for batch := range slices.Chunk(ids, approvalPage) {
		list, _, err := s.approvals(ctx, tenant, batch)
		if err != nil {
			return err
		}
		for _, a := range list {
			if a.open() {
				continue
			}
			if err := s.remove(ctx, a.place()); err != nil {
				return err
			}
			if excess--; excess == 0 {
				return nil
			}
		}
	}
	return nil
}

// oldApprovals returns how many requests are too many, and the oldest ones, of which at least so many are over.
func (s approvalRecords) oldApprovals(ctx context.Context, tenant string) (excess int64, ids []string, err error) {
	ctx, cancel := deadline(ctx)
	defer cancel()
	index := approvalsKey(tenant) + ":index"
	n, err := s.rdb.ZCard(ctx, index).Result()
	if excess = n - maxKeptApprovals; err != nil || excess <= 0 {
		return 0, nil, failure(err)
	}
	excess = min(excess, approvalPage)
	ids, err = s.rdb.ZRangeByLex(ctx, index, &redis.ZRangeBy{Min: "-", Max: "+", Count: excess + MaxOpenApprovals}).Result()
	return excess, ids, failure(err)
}

// Approval returns one request, or NotFound.
func (s approvalRecords) Approval(ctx context.Context, tenant, id string) (ApprovalRecord, error) {
	a, _, err := s.approval(ctx, tenant, id)
	return a, err
}

func (s approvalRecords) approval(ctx context.Context, tenant, id string) (ApprovalRecord, string, error) {
	if err := sandbox.CheckOwnerName("tenant", tenant); err != nil {
		return ApprovalRecord{}, "", err
	}
	list, texts, err := s.approvals(ctx, tenant, []string{id})
	if err == nil && len(list) == 0 {
		err = sandbox.Errorf(sandbox.NotFound, "there is no such request for approval")
	}
	if err != nil {
		return ApprovalRecord{}, "", err
	}
	return list[0], texts[0], nil
}

// approvals returns those of the requests that are there, in order.
func (s approvalRecords) approvals(ctx context.Context, tenant string, ids []string) (list []ApprovalRecord, texts []string, err error) {
	if len(ids) == 0 {
		return nil, nil, nil
	}
	ctx, cancel := deadline(ctx)
	defer cancel()
	values, err := s.rdb.HMGet(ctx, approvalsKey(tenant), ids...).Result()
	if err != nil {
		return nil, nil, failure(err)
	}
	for _, v := range values {
		text, ok := v.(string)
		if !ok {
			continue
		}
		var a ApprovalRecord
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			return nil, nil, sandbox.Wrap(sandbox.Internal, err, "the request for approval cannot be read")
		}
		list, texts = append(list, a), append(texts, text)
	}
	return list, texts, nil
}

// ChangeApproval changes a request. change is given it as it is, and may be called again when another was faster; its
// error ends the call. All servers are told.
func (s approvalRecords) ChangeApproval(ctx context.Context, tenant, id string, change func(*ApprovalRecord) error) (a ApprovalRecord, err error) {
	err = s.untilFirst(ctx, func(ctx context.Context) error {
		var before string
		if a, before, err = s.approval(ctx, tenant, id); err != nil {
			return err
		}
		if err := change(&a); err != nil {
			return err
		}
		text, err := textOf(a)
		if err != nil || s.isDurable(a.place(), before, text) {
			return err
		}
		if err = s.replaceApproval(ctx, a, before, text); err == nil {
			s.tellApproval(ctx, a)
		}
		return err
	})
	return a, err
}

func (s approvalRecords) replaceApproval(ctx context.Context, a ApprovalRecord, before string, text []byte) error {
	p, over := a.place(), ""
	if !a.open() {
		over = "over"
	}
	return s.change(ctx, func(ctx context.Context) (journal.Entry, error) {
		done, err := changeApprovalScript.Run(ctx, s.rdb, append(p.keys(), openApprovalsKey(a.Tenant)), p.field, before, text, a.openMember(), over).Int()
		if err == nil && done == 0 {
			return journal.Entry{}, errOvertaken
		}
		return journal.Entry{Key: p.key, Field: p.field, Index: p.index, Value: text}, failure(err)
	})
}

// OpenApprovals returns the open requests of a thread, oldest first.
func (s approvalRecords) OpenApprovals(ctx context.Context, t sandbox.Thread) ([]ApprovalRecord, error) {
	if err := checkThread(t); err != nil {
		return nil, err
	}
	prefix := t.User + ":" + t.ID
	return s.openApprovals(ctx, t.Tenant, "["+prefix+":", "("+prefix+";", MaxOpenApprovalsThread)
}

func (s approvalRecords) openApprovals(ctx context.Context, tenant, from, to string, limit int64) ([]ApprovalRecord, error) {
	ctx, cancel := deadline(ctx)
	defer cancel()
	members, err := s.rdb.ZRangeByLex(ctx, openApprovalsKey(tenant), &redis.ZRangeBy{Min: from, Max: to, Count: limit}).Result()
	if err != nil {
		return nil, failure(err)
	}
	var all []ApprovalRecord
	for batch := range slices.Chunk(members, approvalPage) {
		ids := make([]string, len(batch))
		for i, m := range batch {
			ids[i] = m[strings.LastIndexByte(m, ':')+1:]
		}
		list, _, err := s.approvals(ctx, tenant, ids)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

// Approvals lists requests, newest first. It finds pending ones without looking at the others.
func (s approvalRecords) Approvals(ctx context.Context, f sandbox.ApprovalFilter) (items []sandbox.Approval, next string, err error) {
	if err := sandbox.CheckOwnerName("tenant", f.Tenant); err != nil {
		return nil, "", err
	}
	if f.Limit <= 0 {
		f.Limit = 100
	}
	take := func(list []ApprovalRecord) (full bool) {
		for _, a := range list {
			switch {
			case f.Cursor != "" && a.ID >= f.Cursor, f.State != "" && a.State != f.State, f.User != "" && a.User != f.User,
				f.Thread != "" && a.Thread != f.Thread, f.Tool != "" && a.Tool != f.Tool:
			case len(items) == f.Limit:
				next = items[len(items)-1].ID
				return true
			default:
				items = append(items, a.Approval)
			}
		}
		return false
	}
	if f.State == sandbox.ApprovalPending {
		list, err := s.openApprovals(ctx, f.Tenant, "-", "+", MaxOpenApprovals)
		slices.SortFunc(list, func(a, b ApprovalRecord) int { return strings.Compare(b.ID, a.ID) })
		take(list)
		return items, next, err
	}
	for from := "+"; ; {
		if f.Cursor != "" && from == "+" {
			from = "(" + f.Cursor
		}
		ids, err := s.approvalIDs(ctx, f.Tenant, from)
		if err != nil || len(ids) == 0 {
			return items, next, err
		}
		list, _, err := s.approvals(ctx, f.Tenant, ids)
		if err != nil || take(list) {
			return items, next, err
		}
		from = "(" + ids[len(ids)-1]
	}
}

func (s approvalRecords) approvalIDs(ctx context.Context, tenant, from string) ([]string, error) {
	ctx, cancel := deadline(ctx)
	defer cancel()
	ids, err := s.rdb.ZRevRangeByLex(ctx, approvalsKey(tenant)+":index", &redis.ZRangeBy{Min: "-", Max: from, Count: approvalPage}).Result()
	return ids, failure(err)
}

// AllOpenApprovals returns the open requests of a tenant.
func (s approvalRecords) AllOpenApprovals(ctx context.Context, tenant string) ([]ApprovalRecord, error) {
	return s.openApprovals(ctx, tenant, "-", "+", MaxOpenApprovals)
}

// tellApproval wakes those who wait for a request, on all servers. Who misses it looks again by itself.
func (s approvalRecords) tellApproval(ctx context.Context, a ApprovalRecord) {
	ctx, cancel := deadline(context.WithoutCancel(ctx))
	defer cancel()
	_ = s.rdb.Publish(ctx, approvalChannel, a.ID).Err()
}

// WatchApprovals calls changed with the id of each request that changes, until ctx ends; with "" when some
// may have been missed.
func (s approvalRecords) WatchApprovals(ctx context.Context, changed func(id string)) {
	s.watch(ctx, approvalChannel, changed)
}

// watch calls changed with what is published, until ctx ends; with "" when some may have been missed.
func (s *conn) watch(ctx context.Context, channel string, changed func(text string)) {
	sub := s.rdb.Subscribe(ctx, channel)
	stop := context.AfterFunc(ctx, func() { _ = sub.Close() })
	defer func() {
		if stop() {
			_ = sub.Close()
		}
	}()
	for m := range sub.ChannelWithSubscriptions() {
		if msg, ok := m.(*redis.Message); ok {
			changed(msg.Payload)
		} else {
			changed("") // the connection is a new one
		}
	}
}

// Grant is an approval that holds for more than one call.
type Grant struct {
	Approval string `json:"approval"`
	By       string `json:"by"`
	KeyID    string `json:"key_id,omitempty"` // of who decided; "": a grant of version 0.1
}

// saveGrantScript keeps a grant, unless the thread has ARGV[3] others.
var saveGrantScript = redis.NewScript(`
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[3]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1`)

// SaveGrant lets a thread make the calls that name stands for, until it is deleted.
func (s approvalRecords) SaveGrant(ctx context.Context, t sandbox.Thread, name string, g Grant) error {
	if err := checkThread(t); err != nil {
		return err
	}
	text, err := textOf(g)
	if err != nil {
		return err
	}
	return s.change(ctx, func(ctx context.Context) (journal.Entry, error) {
		done, err := saveGrantScript.Run(ctx, s.rdb, []string{grantsKey(t)}, name, text, maxGrants).Int()
		if err == nil && done == 0 {
			return journal.Entry{}, sandbox.Errorf(sandbox.QuotaExceeded, "the thread has %d lasting approvals, its most: approve once", maxGrants)
		}
		return journal.Entry{Key: grantsKey(t), Field: name, Value: text}, failure(err)
	})
}

// Grants returns those of the named approvals that the thread has; an absent one has no Approval.
func (s approvalRecords) Grants(ctx context.Context, t sandbox.Thread, names ...string) ([]Grant, error) {
	if err := checkThread(t); err != nil {
		return nil, err
	}
	ctx, cancel := deadline(ctx)
	defer cancel()
	values, err := s.rdb.HMGet(ctx, grantsKey(t), names...).Result()
	if err != nil {
		return nil, failure(err)
	}
	list := make([]Grant, len(names))
	for i, v := range values {
		if text, ok := v.(string); ok {
			if err := json.Unmarshal([]byte(text), &list[i]); err != nil {
				return nil, sandbox.Wrap(sandbox.Internal, err, "a lasting approval cannot be read")
			}
		}
	}
	return list, nil
}

// ForgetGrants takes back what a thread was given for good.
func (s approvalRecords) ForgetGrants(ctx context.Context, t sandbox.Thread) error {
	if err := checkThread(t); err != nil {
		return err
	}
	asking, cancel := deadline(ctx)
	defer cancel()
	names, err := s.rdb.HKeys(asking, grantsKey(t)).Result()
	if err != nil {
		return failure(err)
	}
	for _, name := range names {
		if err := s.remove(ctx, place{key: grantsKey(t), field: name}); err != nil {
			return err
		}
	}
	return nil
}

// reopen finds the open requests among what the journal has.
func (e *embedded) reopen(en journal.Entry) {
	var a ApprovalRecord
	if !strings.HasSuffix(en.Key, approvalsSuffix) || json.Unmarshal(en.Value, &a) != nil || !a.open() {
		return
	}
	_, _ = e.mini.ZAdd(openApprovalsKey(a.Tenant), 0, a.openMember()) // fails only on a key of another type
}
