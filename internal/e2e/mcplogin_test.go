package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// loginArgument is the first argument with which the test binary becomes the client of the official
// conformance suite: a person at a command line, and a browser. The suite adds the URL of an MCP server
// that wants tokens of an authorization server, both of the suite.
const loginArgument = "mcp-login-client"

// Where the person's Skerry server and its program are.
const loginServer, loginProgram = "SKERRY_E2E_LOGIN_SERVER", "SKERRY_E2E_LOGIN_PROGRAM"

func loginClient(url string) int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := logInAndCall(ctx, url); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func logInAndCall(ctx context.Context, url string) error {
	server := os.Getenv(loginServer)
	if _, err := ask(ctx, "PUT", server+"/api/mcp/servers/suite", fmt.Sprintf(`{"url":%q}`, url)); err != nil {
		return err
	}
	if out, err := ask(ctx, "GET", server+"/api/threads/cli/servers", ""); err != nil || !strings.Contains(out, `"state":"needs_login"`) {
		return fmt.Errorf("before the login: %s %w", out, err)
	}
	if err := logIn(ctx, server); err != nil {
		return err
	}
	for _, args := range [][]string{{"call", "suite.test-tool"}, {"logout", "suite"}} {
		out, err := exec.CommandContext(ctx, os.Getenv(loginProgram), append([]string{"mcp", "--address", server}, args...)...).CombinedOutput()
		fmt.Fprintf(os.Stderr, "%v: %s", args, out)
		if err != nil {
			return fmt.Errorf("%v: %w", args, err)
		}
	}
	if out, err := ask(ctx, "GET", server+"/api/threads/cli/servers", ""); err != nil || !strings.Contains(out, `"state":"needs_login"`) {
		return fmt.Errorf("after the logout: %s %w", out, err)
	}
	return nil
}

// logIn runs `skerry mcp login` and opens what it prints, as a browser does: it follows to where it is sent.
func logIn(ctx context.Context, server string) error {
	cmd := exec.CommandContext(ctx, os.Getenv(loginProgram), "mcp", "login", "suite", "--address", server, "--port", "0")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if !strings.HasPrefix(line, "http") {
			continue
		}
		page, err := ask(ctx, "GET", line, "")
		if err != nil || !strings.Contains(page, "You are logged in") {
			return fmt.Errorf("the browser shows %q: %w", page, err)
		}
	}
	return cmd.Wait()
}

// ask makes a request and returns the body of the answer.
func ask(ctx context.Context, method, url, body string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s", method, url, res.Status)
	}
	return string(text), err
}

// TestMCPLogin: a person logs in with `skerry mcp login` at a server that wants it, calls a tool, and logs
// out. The official suite's authorization server judges what it was asked.
func TestMCPLogin(t *testing.T) {
	t.Parallel()
	node, suite := npmProgram(t, "node/bin/node"), npmProgram(t, "@modelcontextprotocol/conformance/dist/index.js")
	s := start(t, options{})
	self, err := os.Executable()
	must(t, err)
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, suite, "client", "--command", self+" "+loginArgument, "--scenario", "auth/token-endpoint-auth-post", "--timeout", "60000", "-o", dir)
	cmd.Env = append(os.Environ(), loginServer+"="+s.url, loginProgram+"="+filepath.Join(bin, "skerry"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*", "checks.json"))
	if more, e := filepath.Glob(filepath.Join(dir, "*", "*", "checks.json")); e == nil {
		files = append(files, more...)
	}
	if err != nil || len(files) != 1 {
		t.Fatalf("%v %v\n%s", files, err, out)
	}
	text, err := os.ReadFile(files[0])
	must(t, err)
	var checks []struct{ ID, Status, ErrorMessage string }
	must(t, json.Unmarshal(text, &checks))
	passed := map[string]bool{}
	for _, c := range checks {
		if c.Status == "FAILURE" || c.Status == "WARNING" {
			t.Errorf("%s: %s", c.ID, c.ErrorMessage)
		}
		passed[c.ID] = passed[c.ID] || c.Status == "SUCCESS"
	}
	for _, id := range []string{"token-endpoint-auth-method", "token-request", "authorization-request", "client-registration"} {
		if !passed[id] {
			t.Errorf("%s did not pass: %s", id, out)
		}
	}
	info, err := os.Stat(filepath.Join(s.data, "mcp", "logins"))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", info, err)
	}
	if bytes.Contains([]byte(s.log.String()), []byte("test-token")) {
		t.Error("a token is in the log")
	}
}
