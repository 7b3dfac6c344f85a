package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver/containerd/containerdtest"
)

// startsEvery: a start takes half a second, and is measured so much less often than a run.
const startsEvery = 6

// starts measures each driver's cold start beside `docker run`.
func starts(_ context.Context, b *bench) (err error) {
	for _, driver := range []string{"docker", "oci", "containerd"} {
		if err := b.driverStarts(driver); err != nil {
			return fmt.Errorf("%s: %w", driver, err)
		}
	}
	return nil
}

func (b *bench) driverStarts(driver string) (err error) {
	s, stop, err := b.serverOf(driver)
	if err != nil {
		b.leave("cold start, driver "+driver, err.Error())
		return nil
	}
	defer func() { err = errors.Join(err, stop()) }()
	n := 0
	limit := bar{}
	if driver == "docker" {
		limit.atMost = 1.5
	}
	// What is left of a start is cleared away before the other side's turn, and is not counted on either side:
	// `docker run --rm` returns before its container is gone, too.
	cold := func() error {
		n++
		thread := fmt.Sprintf("cold-%d", n)
		s.uses(thread)
		return s.exec(thread, "true")
	}
	clear := func() error { return s.drop(fmt.Sprintf("cold-%d", n)) }
	return b.compareCleared(
		side{name: "cold start, driver " + driver, do: cold, every: startsEvery}, clear,
		rival{side{name: "docker run --rm true", do: dockerRun, every: startsEvery}, cost, limit},
	)
}

func dockerRun() error {
	return hostProgram("", "docker", "run", "--rm", "--network", "none", baseImage, "true")()
}

// compareCleared is compare where something is done after each call of ours, which does not count.
func (b *bench) compareCleared(ours side, clear func() error, theirs rival) error {
	times, err := b.alternate(ours.name, ours, side{name: "clear", do: clear, every: ours.every}, theirs.side)
	if err != nil {
		return err
	}
	other := sampled(theirs.name, times[2])
	b.row("ms", sampled(ours.name, times[0]), &other, theirs.by, theirs.limit, "")
	return nil
}

// serverOf returns a server of the driver: the one of most parts where it has that driver.
func (b *bench) serverOf(driver string, env ...string) (*server, func() error, error) {
	if driver == b.driver && len(env) == 0 {
		return b.server, func() error { return nil }, nil
	}
	stop := func() error { return nil }
	if driver == "containerd" {
		programs, err := containerdtest.Built(b.cache)
		if err != nil {
			return nil, nil, fmt.Errorf("it is not installed (scripts/install.sh containerd): %w", err)
		}
		engine, err := containerdtest.Start(programs)
		if err != nil {
			return nil, nil, err
		}
		stop = func() error { return engine.Stop("skerry") }
		env = append(env, "SKERRY_CONTAINERD_ADDRESS="+engine.Address)
	}
	s, err := b.serve(driver, driver, env...)
	if err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return s, func() error { return errors.Join(s.stop(), stop()) }, nil
}

// await looks every 100 ms whether something is so, until the time is over.
func await(ctx context.Context, within time.Duration, so func() (bool, error)) (bool, error) {
	for end := time.Now().Add(within); ; time.Sleep(100 * time.Millisecond) {
		if ok, err := so(); ok || err != nil || time.Now().After(end) {
			return ok, err
		}
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
	}
}
