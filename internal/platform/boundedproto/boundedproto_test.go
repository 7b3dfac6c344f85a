package boundedproto

import (
	"bytes"
	"errors"
	"runtime"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/structpb"
)

func nameOf(m proto.Message) protoreflect.FullName { return m.ProtoReflect().Descriptor().FullName() }

const most = 50

var table = Table{
	nameOf(&descriptorpb.FileDescriptorSet{}): {Bytes: 1 << 20, Values: most},
	nameOf(&descriptorpb.SourceCodeInfo{}):    {Bytes: 1 << 20, Values: most},
	nameOf(&structpb.Struct{}):                {Bytes: 1 << 20, Values: most},
}

func encoded(t testing.TB, m proto.Message) []byte {
	t.Helper()
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func file(messages int) *descriptorpb.FileDescriptorSet {
	return &descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{{MessageType: make([]*descriptorpb.DescriptorProto, messages)}}}
}

func location(numbers int) *descriptorpb.SourceCodeInfo {
	return &descriptorpb.SourceCodeInfo{Location: []*descriptorpb.SourceCodeInfo_Location{{Path: make([]int32, numbers)}}}
}

func object(t testing.TB, members int) *structpb.Struct {
	t.Helper()
	fields := map[string]*structpb.Value{}
	for i := range members {
		fields[string(rune('A'+i))] = structpb.NewBoolValue(true)
	}
	return &structpb.Struct{Fields: fields}
}

// TestValuesAreCounted, at all depths: messages, packed numbers, and members of maps, which are two values each.
func TestValuesAreCounted(t *testing.T) {
	for name, c := range map[string]struct {
		raw  []byte
		into proto.Message
		ok   bool
	}{
		"messages":          {encoded(t, file(most-1)), &descriptorpb.FileDescriptorSet{}, true},
		"too many messages": {encoded(t, file(most)), &descriptorpb.FileDescriptorSet{}, false},
		"numbers":           {encoded(t, location(most-1)), &descriptorpb.SourceCodeInfo{}, true},
		"too many numbers":  {encoded(t, location(most)), &descriptorpb.SourceCodeInfo{}, false},
		"members":           {encoded(t, object(t, most/2)), &structpb.Struct{}, true},
		"too many members":  {encoded(t, object(t, most/2+1)), &structpb.Struct{}, false},
		"too many bytes":    {bytes.Repeat([]byte{0x7a, 0}, 1<<19+1), &structpb.Struct{}, false},
		"no row":            {encoded(t, structpb.NewBoolValue(true)), &structpb.Value{}, false},
	} {
		if err := table.Unmarshal(c.raw, c.into); (err == nil) != c.ok || err != nil && !errors.Is(err, ErrLimit) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := table.Unmarshal([]byte{0x0a, 200}, &structpb.Struct{}); err == nil || errors.Is(err, ErrLimit) {
		t.Errorf("no message: %v", err)
	}
}

// TestRefusedMessagesCostNothing: half a million messages in a megabyte are not decoded first.
func TestRefusedMessagesCostNothing(t *testing.T) {
	raw := bytes.Repeat([]byte{0x0a, 0}, 1<<19)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := table.Unmarshal(raw, &descriptorpb.FileDescriptorSet{}); !errors.Is(err, ErrLimit) {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 64<<10 {
		t.Errorf("%d bytes of memory for a message that is refused", n)
	}
}

// TestUnknownFieldsAreDropped: they would stay in memory, and no limit of values counts them.
func TestUnknownFieldsAreDropped(t *testing.T) {
	raw := protowire.AppendBytes(protowire.AppendTag(nil, 1000, protowire.BytesType), make([]byte, 1000))
	var m structpb.Struct
	if err := table.Unmarshal(raw, &m); err != nil || len(m.ProtoReflect().GetUnknown()) > 0 {
		t.Errorf("%v, %d bytes stay", err, len(m.ProtoReflect().GetUnknown()))
	}
}

// FuzzUnmarshal: what passes is what proto.Unmarshal reads, and holds no more values than allowed. What
// proto.Unmarshal cannot read does not pass.
func FuzzUnmarshal(f *testing.F) {
	f.Add(encoded(f, file(3)))
	f.Add(encoded(f, location(most)))
	f.Add(encoded(f, object(f, 5)))
	list, err := structpb.NewStruct(map[string]any{"a": []any{1, "b", nil, map[string]any{"c": []any{[]any{}, true}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(encoded(f, list))
	f.Add([]byte{0x0b, 0x0b, 0x0c, 0x0c})
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, m := range []proto.Message{&descriptorpb.FileDescriptorSet{}, &descriptorpb.SourceCodeInfo{}, &structpb.Struct{}} {
			plain := m.ProtoReflect().New().Interface()
			bad := options.Unmarshal(raw, plain)
			switch err := table.Unmarshal(raw, m); {
			case err == nil && bad != nil:
				t.Errorf("%T: passes, and is none: %v", m, bad)
			case err == nil && !proto.Equal(m, plain):
				t.Errorf("%T: %v, want %v", m, m, plain)
			case err == nil && held(m.ProtoReflect()) > most:
				t.Errorf("%T: holds %d values", m, held(m.ProtoReflect()))
			case err != nil && bad == nil && !errors.Is(err, ErrLimit):
				t.Errorf("%T: %v", m, err)
			}
		}
	})
}

// held counts the values of a decoded message.
func held(m protoreflect.Message) int {
	n := 0
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				n++ // and another one, unless the value was left out
				if f.MapValue().Message() != nil {
					n += held(v.Message())
				}
				return true
			})
		case f.IsList():
			n += v.List().Len()
			for i := 0; f.Message() != nil && i < v.List().Len(); i++ {
				n += held(v.List().Get(i).Message())
			}
		case f.Message() != nil:
			n += 1 + held(v.Message())
		}
		return true
	})
	return n
}
