package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/auth"
	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/policy"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

// recording measures what permission and audit cost an exec, on the disk of the data folder. It covers the
// caller's key, the built-in policy, the arguments' hash, the attempt, the result, and the wait until both
// are on disk. It runs between execs of the server, which writes its own records there.
func recording(ctx context.Context, b *bench) (err error) {
	log, err := audit.Open(audit.Options{Dir: filepath.Join(b.dir, "records")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	state, err := store.Open(ctx, store.Options{Journal: filepath.Join(b.dir, "recording.jsonl")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, state.Close()) }()
	keys := auth.New(state, auth.Options{})
	admin := sandbox.Caller{Owner: sandbox.Owner{Tenant: "default", User: "bench"}, Role: sandbox.RoleAdmin}
	_, secret, err := keys.CreateKey(ctx, admin, auth.Key{User: "bench", Role: sandbox.RoleAgent})
	if err != nil {
		return err
	}
	rules, err := policy.Open(policy.EngineOptions{File: filepath.Join(b.dir, "policy.yaml")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rules.Close()) }()
	plain, err := os.Create(filepath.Join(b.dir, "fsynced"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plain.Close()) }()
	line := make([]byte, 1200) // two records
	times, err := b.alternate("rights and records of an exec",
		side{name: "records", do: func() error {
			c, err := keys.Authenticate(ctx, auth.Credential{Secret: secret, Source: "127.0.0.1"})
			if err != nil {
				return err
			}
			d := rules.Decide(ctx, policy.Request{
				Kind: policy.KindExec, Caller: c, Thread: sandbox.Thread{Owner: c.Owner, ID: "bench"}, Time: time.Now(), Arguments: json.RawMessage(`{"argv":["true"]}`),
			})
			if d.Effect() != policy.Allow {
				return fmt.Errorf("the policy says %s", d.Effect())
			}
			return recordExec(ctx, log)
		}},
		side{name: "fsync", do: func() error {
			_, err := plain.Write(line)
			return errors.Join(err, plain.Sync())
		}},
		side{name: "exec", do: func() error { return b.exec("bench", "true") }},
	)
	if err != nil {
		return err
	}
	fsync, exec := sampled("write and fsync of as much", times[1]), sampled("exec true, all of it", times[2])
	b.row("ms", sampled("key, policy and durable records of an exec", times[0]), &fsync, slowest, bar{atMost: 1}, "")
	b.row("ms", sampled("key, policy and durable records of an exec", times[0]), &exec, cost, bar{}, "")
	return nil
}

// recordExec writes the two records of an exec, as the server does.
func recordExec(ctx context.Context, log *audit.Log) error {
	r := audit.Record{
		Tenant: "default", User: "default", Thread: "bench", Sandbox: "bench", Exec: "01a1ff3e-c11b-7bb9-996b-a7cfaea0875a",
		Phase: audit.PhaseAttempt, Action: audit.ActionExec, Subject: "true", Source: "127.0.0.1", UserAgent: "bench",
	}
	r.Args, r.ArgsHash = audit.Args(map[string]any{"argv": []string{"true"}, "timeout_s": 60})
	attempt, err := log.Append(ctx, r)
	if err != nil {
		return err
	}
	r.Phase, r.Parent, r.Outcome, r.Detail, r.Args, r.ArgsHash = audit.PhaseResult, attempt.ID, "exited", "code 0", nil, ""
	if _, err := log.AppendSync(ctx, r); err != nil {
		return fmt.Errorf("append: %w", err)
	}
	return nil
}
