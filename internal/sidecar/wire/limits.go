package wire

import (
	"sync"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/skerry-sandbox/skerry/internal/platform/boundedproto"
)

const (
	maxMounts  = 64
	maxParents = 128 // folders above a path
	// maxFailure holds a Failure, whose text has at most 1000 bytes.
	maxFailure = 2 << 10
)

// limits of each message that begins or answers something. A stream is given no more memory than its next message may
// take, before any of it has come.
var limits = sync.OnceValue(func() boundedproto.Table { // the messages have no names before the package's init
	return boundedproto.Table{
		name(&Hello{}):   {Bytes: 512},
		name(&Welcome{}): {Bytes: maxMounts*4200 + maxFailure, Values: maxMounts + 1},
		name(&Socket{}):  {Bytes: 256},
		name(&Request{}): {Bytes: MaxMessage, Values: maxMounts + maxParents + 1},
		name(&Entries{}): {Bytes: MaxMessage, Values: MaxBatch + 1},
		name(&Wanted{}):  {Bytes: 8*MaxBatch + maxFailure, Values: MaxBatch + 1},
		name(&Content{}): {Bytes: MaxData + maxFailure, Values: 1},
		name(&Outcome{}): {Bytes: 4 << 10, Values: 1},
	}
})

func name(m protoreflect.ProtoMessage) protoreflect.FullName {
	return m.ProtoReflect().Descriptor().FullName()
}
