package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/platform/anchor"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// runAnchored does what skerry-sandboxd does with an anchor: it ends with it, and passes connections to its port on.
func runAnchored() error {
	ctx, cancel := context.WithTimeout(context.Background(), anchor.ConnectTime)
	defer cancel()
	a, err := anchor.Connect(ctx, anchor.Address)
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", sandbox.BridgePort))
	if err != nil {
		return err
	}
	go func() {
		<-a.Done()
		os.Exit(1)
	}()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				os.Exit(1)
			}
			go pass(a, conn)
		}
	}()
	return nil
}

func pass(a *anchor.Anchor, conn net.Conn) {
	defer conn.Close() //nolint:errcheck // the exchange is over
	up, err := a.Dial(context.Background(), sandbox.ControlSocket)
	if err != nil {
		return
	}
	defer up.Close() //nolint:errcheck // as above
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = io.Copy(up, conn)
		_ = up.CloseWrite()
	})
	_, _ = io.Copy(conn, up)
	_ = conn.Close()
	wg.Wait()
}
