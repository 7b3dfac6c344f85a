package run

import (
	"runtime"
	"strings"
	"testing"
)

// TestDisplayedObjectsAreBounded: what a context displays has few members, and those of a hostile one are not read.
func TestDisplayedObjectsAreBounded(t *testing.T) {
	all, ok := members([]byte(`{"text/plain":"a","application/json":[1,2,{"b":null}]}`))
	if !ok || len(all) != 2 || string(all["application/json"]) != `[1,2,{"b":null}]` {
		t.Errorf("%s, %v", all, ok)
	}
	for _, bad := range []string{``, `null`, `[]`, `"a"`, `{"a":1`, `{"a":1}{}`, `{"a":}`, `{"a":1,}`} {
		if _, ok := members([]byte(bad)); ok {
			t.Errorf("%s is read", bad)
		}
	}
	if files := listed([]byte(`[{"mime":"a/b","path":"/c"},{}]`)); len(files) != 2 || files[0].Path != "/c" {
		t.Errorf("%v", files)
	}
	many := []byte(`{"a":0` + strings.Repeat(`,"a":0`, 500_000) + `}`)
	list := []byte(`[{}` + strings.Repeat(`,{}`, 500_000) + `]`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, ok = members(many)
	files := listed(list)
	runtime.ReadMemStats(&after)
	if ok || len(files) != maxMIMEs {
		t.Errorf("%v, %d files", ok, len(files))
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("%d bytes of memory for what is left out", n)
	}
}
