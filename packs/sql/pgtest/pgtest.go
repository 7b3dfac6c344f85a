// Package pgtest starts a real PostgreSQL for tests, as a user without rights, on a unix socket in a folder of its own.
package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	port     = "5432" // only the name of the socket
	startFor = 2 * time.Minute
	every    = 50 * time.Millisecond
	stopFor  = 30 * time.Second
)

// Server is a PostgreSQL that runs until the test ends.
type Server struct{ Dir string }

// URL is that of a role, without a password: those on the socket need none but the roles of pg_hba.conf.
func (s Server) URL(role, database string) string {
	return fmt.Sprintf("postgres://%s@/%s?host=%s&port=%s", role, database, s.Dir, port)
}

// programs is the folder of the newest PostgreSQL of Debian.
func programs() string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return ""
	}
	slices.SortFunc(found, func(a, b string) int { return version(a) - version(b) })
	return filepath.Dir(found[len(found)-1])
}

func version(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	return n
}

// Start starts a server with the role postgres, a superuser, and runs setup in the database postgres.
func Start(t *testing.T, setup string) Server {
	t.Helper()
	bin := programs()
	if bin == "" {
		if os.Getenv("CI") != "" {
			t.Fatal("PostgreSQL is missing: scripts/install.sh postgres")
		}
		t.Skip("PostgreSQL is missing: scripts/install.sh postgres")
	}
	dir, err := os.MkdirTemp("", "pg") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	data := filepath.Join(dir, "data")
	as := &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
	if os.Getuid() == 0 {
		nobody, err := user.Lookup("nobody")
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.Atoi(nobody.Uid)
		gid, _ := strconv.Atoi(nobody.Gid)
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
		as.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)} //nolint:gosec // ids
	}
	initdb := exec.Command(filepath.Join(bin, "initdb"), "--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "--pgdata="+data)
	initdb.SysProcAttr, initdb.Dir = as, dir
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	s := Server{dir}
	s.run(t, bin, data, as)
	s.Admin(t, setup)
	return s
}

// run starts the server, and waits until it answers.
func (s Server) run(t *testing.T, bin, data string, as *syscall.SysProcAttr) {
	t.Helper()
	log, err := os.Create(filepath.Join(s.Dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-k", s.Dir, "-p", port, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=40")
	cmd.SysProcAttr, cmd.Dir, cmd.Stdout, cmd.Stderr = as, s.Dir, log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var why error // once it has ended
	ended := make(chan struct{})
	go func() {
		why = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT) // fast shutdown
		select {
		case <-ended:
		case <-time.After(stopFor):
			_ = cmd.Process.Kill()
			<-ended
		}
		_ = log.Close()
	})
	for began := time.Now(); ; time.Sleep(every) {
		conn, err := pgx.Connect(t.Context(), s.URL("postgres", "postgres"))
		if err == nil {
			_ = conn.Close(t.Context())
			return
		}
		select {
		case <-ended:
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("PostgreSQL ended: %v\n%s", why, text)
		default:
		}
		if time.Since(began) > startFor {
			text, _ := os.ReadFile(log.Name())
			t.Fatalf("PostgreSQL does not answer: %v\n%s", err, text)
		}
	}
}

// Admin runs statements as the superuser, and returns the first value as a text.
func (s Server) Admin(t *testing.T, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL("postgres", "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	results, err := conn.PgConn().Exec(t.Context(), sql).ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	for _, r := range results {
		if len(r.Rows) > 0 {
			return string(r.Rows[0][0])
		}
	}
	return ""
}
