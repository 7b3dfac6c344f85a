package store

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/skerry-sandbox/skerry/internal/platform/fold"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store/journal"
	"github.com/skerry-sandbox/skerry/internal/store/threadscripts"
)

// MaxThreads is the longest page of threads.
const MaxThreads = 1000

// ThreadQuery says which threads are listed, and in which order.
type ThreadQuery struct {
	Owner sandbox.Owner // without a user: all of the tenant, which needs Latest or Largest
	// Latest lists by the last activity, the latest first, instead of by id.
	Latest bool
	// From and To bound the last activity of a list that is Latest; zero: they do not.
	From, To time.Time
	// Largest lists by the size of the files, the largest first, threads that were measured and have MinDisk bytes. Threads
	// whose size changes while a list is read may be in it twice, or be left out.
	Largest bool
	MinDisk int64
	// Text leaves out threads of such lists in whose id, user and labels it cannot be, whatever its case. Others may stay.
	Text string
}

// ListedThread is a thread of a list.
type ListedThread struct {
	sandbox.ThreadInfo
	Used   *sandbox.ThreadUsage // nil: nothing is known
	Cursor string               // the list goes on behind it
}

// activeMember names a thread among those of its tenant.
func activeMember(t sandbox.Thread) string { return t.User + ":" + t.ID }

// ThreadPage reads the next threads of a list, count of them at most. cursor is "" or that of a thread. next is the cursor
// behind the page, "" at the end of the list. A page may be shorter than count, even empty, and have a next.
func (s threadRecords) ThreadPage(ctx context.Context, q ThreadQuery, cursor string, count int) (page []ListedThread, next string, err error) {
	if err := q.check(); err != nil {
		return nil, "", err
	}
	if q.Latest {
		if err := s.buildActivity(ctx, q.Owner.Tenant); err != nil {
			return nil, "", err
		}
	}
	if q.scored() {
		return s.highest(ctx, q, cursor, count)
	}
	if cursor != "" && sandbox.CheckThreadID(cursor) != nil {
		return nil, "", errCursor
	}
	ctx, cancel := deadline(ctx)
	defer cancel()
	from := "-"
	if cursor != "" {
		from = "(" + cursor
	}
	keys := []string{threadIndexKey(q.Owner), threadsKey(q.Owner), activeKey(q.Owner), threadUsageKey(q.Owner)}
	lists, err := threadscripts.Page.Run(ctx, s.rdb, keys, from, count+1).Slice()
	if err != nil {
		return nil, "", failure(err)
	}
	var cols [4][]string
	for i := range cols {
		if cols[i], err = stringList(lists, i); err != nil {
			return nil, "", err
		}
	}
	n := min(len(cols[0]), count)
	for i := range n {
		if cols[1][i] == "" {
			continue // deleted between two commands of a client that knows no script
		}
		info, err := threadInfo(cols[1][i], score(cols[2][i]))
		if err != nil {
			return nil, "", err
		}
		page = append(page, ListedThread{ThreadInfo: info, Used: threadscripts.Usage(cols[3][i]), Cursor: info.ID})
	}
	if len(cols[0]) > n {
		next = cols[0][n-1]
	}
	return page, next, nil
}

var errCursor = sandbox.Errorf(sandbox.Invalid, "cursor: use next_cursor of an earlier answer")

// scored reports whether a list has the order of a sorted set.
func (q ThreadQuery) scored() bool { return q.Latest || q.Largest }

// set returns the sorted set of a list, and the least score that is wanted.
func (q ThreadQuery) set() (key string, least int64) {
	switch {
	case q.Largest && q.Owner.User == "":
		return tenantDiskKey(q.Owner.Tenant), q.MinDisk
	case q.Largest:
		return diskKey(q.Owner), q.MinDisk
	case !q.From.IsZero():
		least = q.From.UnixMilli()
	}
	if q.Owner.User == "" {
		return tenantActiveKey(q.Owner.Tenant), least
	}
	return activeKey(q.Owner), least
}

func (q ThreadQuery) check() error {
	if q.Owner.User == "" && q.scored() {
		return sandbox.CheckOwnerName("tenant", q.Owner.Tenant)
	}
	return checkOwner(q.Owner)
}

// ThreadCount returns how many threads an owner has, or without a user its tenant.
func (s threadRecords) ThreadCount(ctx context.Context, o sandbox.Owner) (int64, error) {
	if err := (ThreadQuery{Owner: o, Latest: true}).check(); err != nil {
		return 0, err
	}
	key := threadIndexKey(o)
	if o.User == "" {
		if err := s.buildActivity(ctx, o.Tenant); err != nil {
			return 0, err
		}
		key = tenantActiveKey(o.Tenant)
	}
	ctx, cancel := deadline(ctx)
	defer cancel()
	n, err := s.rdb.ZCard(ctx, key).Result()
	return n, failure(err)
}

// highest is ThreadPage for a list by activity or size. A cursor is the score, a dot, and the member of the list.
func (s threadRecords) highest(ctx context.Context, q ThreadQuery, cursor string, count int) (page []ListedThread, next string, err error) {
	at, member, err := q.place(cursor)
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := deadline(ctx)
	defer cancel()
	key, least := q.set()
	rows, err := s.behind(ctx, key, at, member, count+1)
	if err != nil {
		return nil, "", failure(err)
	}
	found := make([]ListedThread, 0, count)
	for i, row := range rows {
		m, _ := row.Member.(string)
		n := int64(row.Score)
		if n < least {
			break
		}
		if i == count {
			next = found[i-1].Cursor // count is at least 1
			break
		}
		t := sandbox.Thread{Owner: q.Owner, ID: m}
		if q.Owner.User == "" {
			t.User, t.ID, _ = strings.Cut(m, ":")
		}
		info := sandbox.ThreadInfo{Thread: t}
		if q.Latest {
			info.LastActiveAt = time.UnixMilli(n)
		}
		found = append(found, ListedThread{ThreadInfo: info, Cursor: strconv.FormatInt(n, 10) + "." + m})
	}
	if found, err = s.having(ctx, found, q.Text); err != nil {
		return nil, "", err
	}
	page, err = s.readListed(ctx, found)
	return page, next, err
}

// behind returns members of a sorted set behind a place, the one with the highest score first: want of them, fewer at the end. The
// place is a score and a member, which may have moved or gone since; without a member it is the highest score that is wanted, or
// nothing. Members of the score of the place are read once more, as a rule that one.
func (s threadRecords) behind(ctx context.Context, key, at, member string, want int) (rows []redis.Z, err error) {
	by := redis.ZRangeBy{Min: "-inf", Max: cmp.Or(at, "+inf")}
	place, _ := strconv.ParseFloat(at, 64) // "": no member, so it does not count
	for len(rows) < want {
		by.Count = int64(want - len(rows) + 16)
		more, err := s.rdb.ZRevRangeByScoreWithScores(ctx, key, &by).Result()
		if err != nil {
			return nil, err
		}
		for _, row := range more {
			if m, _ := row.Member.(string); len(rows) < want && (member == "" || row.Score < place || m < member) {
				rows = append(rows, row)
			}
		}
		if int64(len(more)) < by.Count {
			break
		}
		by.Offset += by.Count
	}
	return rows, nil
}

// place is where a list by activity or size goes on: behind a score and a member of it, or at a time.
func (q ThreadQuery) place(cursor string) (at, member string, err error) {
	if cursor == "" {
		if q.Latest && !q.To.IsZero() {
			at = strconv.FormatInt(q.To.UnixMilli(), 10)
		}
		return at, "", nil
	}
	at, member, _ = strings.Cut(cursor, ".")
	user, id, ok := strings.Cut(member, ":")
	if q.Owner.User != "" {
		user, id, ok = q.Owner.User, member, true
	}
	ms, err := strconv.ParseInt(at, 10, 64)
	if err != nil || ms < 0 || ms > 1<<52 || !ok || checkThread(sandbox.Thread{Owner: sandbox.Owner{Tenant: q.Owner.Tenant, User: user}, ID: id}) != nil {
		return "", "", errCursor
	}
	return strconv.FormatInt(ms, 10), member, nil
}

// readListed reads the records of listed threads, of each user at once, with when they were active where that is not known.
// Those that are gone are left out.
func (s threadRecords) readListed(ctx context.Context, found []ListedThread) ([]ListedThread, error) {
	users := byOwner(found)
	if len(users) == 0 {
		return nil, nil
	}
	records, usage, active := map[sandbox.Owner]*redis.SliceCmd{}, map[sandbox.Owner]*redis.SliceCmd{}, make([]*redis.FloatCmd, len(found))
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for o, at := range users {
			ids := make([]string, len(at))
			for n, i := range at {
				ids[n] = found[i].ID
				if found[i].LastActiveAt.IsZero() {
					active[i] = p.ZScore(ctx, activeKey(o), found[i].ID)
				}
			}
			records[o], usage[o] = p.HMGet(ctx, threadsKey(o), ids...), p.HMGet(ctx, threadUsageKey(o), ids...)
		}
		return nil
	})
	if err != nil && !isNil(err) {
		return nil, failure(err)
	}
	kept := make([]bool, len(found))
	for o, at := range users {
		if err := errors.Join(records[o].Err(), usage[o].Err()); err != nil {
			return nil, failure(err)
		}
		for n, i := range at {
			text, ok := records[o].Val()[n].(string)
			if !ok {
				continue
			}
			at := found[i].LastActiveAt.UnixMilli()
			if active[i] != nil {
				at = int64(active[i].Val())
			}
			if found[i].ThreadInfo, err = threadInfo(text, at); err != nil {
				return nil, err
			}
			text, _ = usage[o].Val()[n].(string)
			found[i].Used, kept[i] = threadscripts.Usage(text), true
		}
	}
	return keep(found, kept), nil
}

func byOwner(found []ListedThread) map[sandbox.Owner][]int {
	users := map[sandbox.Owner][]int{}
	for i, t := range found {
		users[t.Owner] = append(users[t.Owner], i)
	}
	return users
}

// havingStep bounds the records that having holds: one may have 10 KiB of labels.
const havingStep = 2000

// having leaves out threads whose records cannot have a text: most of many, which need not be decoded then.
func (s threadRecords) having(ctx context.Context, found []ListedThread, text string) ([]ListedThread, error) {
	if text == "" || !fold.PlainInJSON(text) { // a record may have it in another form
		return found, nil
	}
	want, page := fold.New(text), found[:0]
	for some := range slices.Chunk(found, havingStep) {
		users, records, kept := byOwner(some), map[sandbox.Owner]*redis.SliceCmd{}, make([]bool, len(some))
		_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for o, at := range users {
				ids := make([]string, len(at))
				for n, i := range at {
					ids[n] = some[i].ID
				}
				records[o] = p.HMGet(ctx, threadsKey(o), ids...)
			}
			return nil
		})
		if err != nil {
			return nil, failure(err)
		}
		for o, at := range users {
			for n, i := range at {
				record, _ := records[o].Val()[n].(string)
				kept[i] = want.In(record)
			}
		}
		page = append(page, keep(some, kept)...)
	}
	return page, nil
}

func keep(found []ListedThread, kept []bool) []ListedThread {
	page := found[:0]
	for i, t := range found {
		if kept[i] {
			page = append(page, t)
		}
	}
	return page
}

// score reads a time of activity, or a size; 0: there is none.
func score(text string) int64 {
	ms, err := strconv.ParseFloat(text, 64)
	if err != nil || ms < 0 || ms > 1<<52 {
		return 0
	}
	return int64(ms)
}

// buildTimeout bounds buildActivity, which reads the threads of a whole tenant once.
const buildTimeout = time.Minute

// buildActivity lists by activity the threads that servers made before they kept such lists. Once in the life of a Redis.
func (s threadRecords) buildActivity(ctx context.Context, tenant string) error {
	if s.embedded != nil { // its threads come from the journal, with their activity
		return nil
	}
	short, cancel := deadline(ctx)
	defer cancel()
	if n, err := s.rdb.Exists(short, activeBuiltKey(tenant)).Result(); err != nil || n > 0 {
		return failure(err)
	}
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), buildTimeout)
	defer cancel()
	node := s.rdb
	if c, ok := s.rdb.(*redis.ClusterClient); ok { // all keys of a tenant are in one place
		master, err := c.MasterForKey(ctx, activeBuiltKey(tenant))
		if err != nil {
			return failure(err)
		}
		node = master
	}
	prefix := threadsKey(sandbox.Owner{Tenant: tenant}) // no character of it is special in a pattern of Redis
	keys := node.ScanType(ctx, 0, prefix+"*", 1000, "hash").Iterator()
	for keys.Next(ctx) {
		if err := s.buildActivityOf(ctx, sandbox.Owner{Tenant: tenant, User: strings.TrimPrefix(keys.Val(), prefix)}); err != nil {
			return err
		}
	}
	if err := keys.Err(); err != nil {
		return failure(err)
	}
	return failure(s.rdb.Set(ctx, activeBuiltKey(tenant), 1, 0).Err())
}

func (s threadRecords) buildActivityOf(ctx context.Context, o sandbox.Owner) error {
	records := s.rdb.HScan(ctx, threadsKey(o), 0, "", 500).Iterator()
	own, all := make([]redis.Z, 0, 500), make([]redis.Z, 0, 500)
	flush := func() error {
		if len(own) == 0 {
			return nil
		}
		_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.ZAddNX(ctx, activeKey(o), own...)
			p.ZAddNX(ctx, tenantActiveKey(o.Tenant), all...)
			return nil
		})
		own, all = own[:0], all[:0]
		return failure(err)
	}
	for records.Next(ctx) {
		id := records.Val()
		if !records.Next(ctx) {
			break
		}
		info, err := threadInfo(records.Val(), 0)
		if err != nil {
			return err
		}
		at := float64(info.LastActiveAt.UnixMilli())
		own = append(own, redis.Z{Score: at, Member: id})
		all = append(all, redis.Z{Score: at, Member: activeMember(sandbox.Thread{Owner: o, ID: id})})
		if len(own) == cap(own) {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if err := records.Err(); err != nil {
		return failure(err)
	}
	return flush()
}

// loadActivity does for a thread of the journal what noteActivity does.
func (e *embedded) loadActivity(en journal.Entry) {
	rest, ok := strings.CutPrefix(en.Index, "skerry:{")
	tenant, rest, _ := strings.Cut(rest, "}:threads:")
	user, ok2 := strings.CutSuffix(rest, ":index")
	t := sandbox.Thread{Owner: sandbox.Owner{Tenant: tenant, User: user}, ID: en.Field}
	if !ok || !ok2 || checkThread(t) != nil {
		return
	}
	info, err := threadInfo(string(en.Value), 0)
	if err != nil {
		return // who reads the thread is told
	}
	at := float64(info.LastActiveAt.UnixMilli())
	_, _ = e.mini.ZAdd(activeKey(t.Owner), at, t.ID) // fails only on a key of another type
	_, _ = e.mini.ZAdd(tenantActiveKey(tenant), at, activeMember(t))
}
