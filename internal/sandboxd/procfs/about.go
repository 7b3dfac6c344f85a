package procfs

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// CommandLine returns the arguments of a process with blanks between them, at most so many bytes; its name in brackets when it
// has none, "" when it is gone. A process writes both itself.
func CommandLine(pid, most int) string {
	dir := "/proc/" + strconv.Itoa(pid)
	if f, err := os.Open(dir + "/cmdline"); err == nil {
		defer f.Close()
		line, err := io.ReadAll(io.LimitReader(f, int64(most)))
		if err == nil && len(line) > 0 {
			return strings.TrimRight(string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})), " ")
		}
	}
	name, err := os.ReadFile(dir + "/comm")
	if err != nil {
		return ""
	}
	return "[" + strings.TrimSpace(string(name[:min(len(name), most)])) + "]"
}

// About is what a process says of itself, and what the kernel counts of it; what cannot be read is 0 or "".
type About struct {
	Command string // see CommandLine; valid UTF-8
	Started time.Time
	RSS     int64 // bytes that it has in RAM
	CPU     time.Duration
}

// AboutOf reads it, of the command line at most so many bytes.
func AboutOf(pid, most int) About {
	a := About{Command: strings.ToValidUTF8(CommandLine(pid, most), "?")}
	dir := "/proc/" + strconv.Itoa(pid)
	if status, err := os.ReadFile(dir + "/status"); err == nil {
		a.RSS = kibibytes(status, "VmRSS")
	}
	if line, err := os.ReadFile(dir + "/stat"); err == nil {
		fields := bytes.Fields(line[bytes.LastIndexByte(line, ')')+1:])
		a.Started = started(fields)
		a.CPU = time.Duration(field(fields, userField)+field(fields, systemField)) * tick
	}
	return a
}

// Numbers of fields of a process's line. Times are in ticks, the start since the machine did.
const (
	userField   = 14
	systemField = 15
	startField  = 22
)

// field is a number behind the name of a process; 0: there is none.
func field(fields [][]byte, number int) int64 {
	if len(fields) <= number-stateField {
		return 0
	}
	n, err := strconv.ParseInt(string(fields[number-stateField]), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// started is when a process began; zero when that cannot be told.
func started(fields [][]byte) time.Time {
	text, err := os.ReadFile("/proc/uptime")
	ticks := field(fields, startField)
	if err != nil || ticks == 0 {
		return time.Time{}
	}
	word, _, _ := strings.Cut(string(text), " ")
	up, err := strconv.ParseFloat(word, 64)
	if err != nil {
		return time.Time{}
	}
	age := time.Duration(up*float64(time.Second)) - time.Duration(ticks)*tick
	return time.Now().Add(-max(age, 0))
}
