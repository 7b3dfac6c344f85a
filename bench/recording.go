package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/skerry-sandbox/skerry/internal/audit"
)

// recording measures what an exec pays for its records: the arguments' hash, the attempt, the result, and the wait
// until both are on the disk, on the disk of the data folder. It does so between execs of the server, which
// writes its own there. A policy there is none in this build.
func recording(ctx context.Context, b *bench) (err error) {
	log, err := audit.Open(audit.Options{Dir: filepath.Join(b.dir, "records")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	plain, err := os.Create(filepath.Join(b.dir, "fsynced"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plain.Close()) }()
	line := make([]byte, 1200) // two records
	times, err := b.alternate("records of an exec",
		side{name: "records", do: func() error { return recordExec(ctx, log) }},
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
	b.row("ms", sampled("records of an exec, durable", times[0]), &fsync, slowest, bar{atMost: 1}, "")
	b.row("ms", sampled("records of an exec, durable", times[0]), &exec, cost, bar{}, "")
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
