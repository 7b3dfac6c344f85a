package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestDoctorOfServer: what a server finds is shown, no terminal is steered by it, and a problem is a failure.
func TestDoctorOfServer(t *testing.T) {
	status, answer := http.StatusOK, ""
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/doctor" || r.Header.Get("Authorization") != "Bearer k" {
			t.Errorf("asked %s", r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	defer api.Close()
	ask := func(args ...string) (int, string, string) {
		return run(t, "", append([]string{"--server", api.URL, "--api-key", "k", "doctor", "--server-only"}, args...)...)
	}
	const clock = `{"check":"clock","state":"warning","detail":"is \u001b[31mwrong","fix":"set it"}`
	answer = `{"at":"2026-01-02T03:04:05Z","items":[{"check":"driver","name":"oci","state":"ok","detail":"runs"},` + clock + `]}`
	code, out, errs := ask()
	if code != 0 || !strings.Contains(out, "ok       driver oci: runs\nwarning  clock: is ") || !strings.Contains(out, "\n         -> set it\n") ||
		!strings.Contains(out, "0 problems, 1 warning.") || strings.ContainsRune(out, '\x1b') {
		t.Errorf("%d %q %s", code, out, errs)
	}
	answer = `{"at":"2026-01-02T03:04:05Z","items":[{"check":"audit log","state":"problem","detail":"the disk is full","fix":"make room"},` + clock + `]}`
	if code, out, errs = ask(); code != 1 || !strings.Contains(out, "problem  audit log: the disk is full") {
		t.Errorf("%d %q %s", code, out, errs)
	}
	code, out, errs = ask("--json")
	var told struct {
		Serves bool
		Checks []struct{ Check, State, Fix string }
	}
	if err := json.Unmarshal([]byte(out), &told); err != nil || code != 1 || told.Serves || len(told.Checks) != 2 || told.Checks[0].Fix != "make room" || told.Checks[1].State != "warning" {
		t.Errorf("%d %q %s %v", code, out, errs, err)
	}
	status, answer = http.StatusForbidden, `{"status":403,"code":"forbidden","detail":"operators only"}`
	if code, out, errs = ask(); code != 1 || out != "" || !strings.Contains(errs, "operators only") {
		t.Errorf("%d %q %s", code, out, errs)
	}
	if code, _, errs = run(t, "", "doctor", "--server-only", "--listen", "127.0.0.1:1", "--server", api.URL); code != 2 || !strings.Contains(errs, "--listen") {
		t.Errorf("%d %s", code, errs)
	}
}
