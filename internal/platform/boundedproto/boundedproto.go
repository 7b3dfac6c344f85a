// Package boundedproto decodes protobuf messages of peers that are not trusted.
//
// The length of an encoding does not bound what it decodes to: an empty message in a repeated field has two bytes,
// and takes more than a hundred of memory. So this package counts what a message holds before it decodes it, by
// limits for each kind of message. It drops fields that it does not know, which proto.Unmarshal keeps.
package boundedproto

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/skerry-sandbox/skerry/internal/platform/jsonedit"
)

// ErrLimit is wrapped by errors about messages beyond their limits.
var ErrLimit = errors.New("a message beyond its limits")

// Limits bound one message.
type Limits struct {
	Bytes int // of its encoding
	// Values are the messages in it, and the elements of repeated fields and maps, at all depths together.
	Values int
}

// Table has the limits of kinds of messages. A kind that is not in it cannot be decoded.
type Table map[protoreflect.FullName]Limits

// Of returns the limits of a kind of message. Without a row they are zero, and allow only an empty message.
func (t Table) Of(m protoreflect.MessageDescriptor) Limits { return t[m.FullName()] }

// Unmarshal decodes a message within the limits of its kind.
func (t Table) Unmarshal(raw []byte, m proto.Message) error {
	desc := m.ProtoReflect().Descriptor()
	limits := t.Of(desc)
	if len(raw) > limits.Bytes {
		return fmt.Errorf("%w: %s of %d bytes, at most %d", ErrLimit, desc.Name(), len(raw), limits.Bytes)
	}
	left := limits.Values
	if err := count(raw, desc, &left); err != nil {
		return fmt.Errorf("%s: %w", desc.Name(), err)
	}
	if left < 0 {
		return fmt.Errorf("%w: %s with more than %d values", ErrLimit, desc.Name(), limits.Values)
	}
	return options.Unmarshal(raw, m)
}

// jsonFields is how many members a JSON text may have beside what Limits count: plain fields, and unknown ones.
const jsonFields = 100

// DecodeJSON decodes the JSON form of a message within the limits of its kind.
func (t Table) DecodeJSON(text []byte, m proto.Message) error {
	desc := m.ProtoReflect().Descriptor()
	limits := t.Of(desc)
	if len(text) > limits.Bytes {
		return fmt.Errorf("%w: %s of %d bytes, at most %d", ErrLimit, desc.Name(), len(text), limits.Bytes)
	}
	if jsonedit.Values(text) > limits.Values+jsonFields {
		return fmt.Errorf("%w: %s with more than %d values", ErrLimit, desc.Name(), limits.Values)
	}
	return jsonOptions.Unmarshal(text, m)
}

// jsonOptions are options for JSON.
var jsonOptions = protojson.UnmarshalOptions{DiscardUnknown: true, Resolver: new(protoregistry.Types)}

// options drop unknown fields, and know no extensions: count does not see those.
var options = proto.UnmarshalOptions{DiscardUnknown: true, Resolver: new(protoregistry.Types)}

// count takes what an encoding holds from left, and stops once that is below 0.
func count(raw []byte, desc protoreflect.MessageDescriptor, left *int) error {
	fields := desc.Fields()
	for len(raw) > 0 && *left >= 0 {
		num, typ, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return protowire.ParseError(n)
		}
		raw = raw[n:]
		if n = protowire.ConsumeFieldValue(num, typ, raw); n < 0 {
			return protowire.ParseError(n)
		}
		value := raw[:n]
		raw = raw[n:]
		field := fields.ByNumber(num)
		if field == nil {
			continue
		}
		if err := countField(value, typ, field, left); err != nil {
			return err
		}
	}
	return nil
}

func countField(value []byte, typ protowire.Type, field protoreflect.FieldDescriptor, left *int) error {
	switch {
	case field.Message() != nil && typ == protowire.BytesType:
		*left--
		inner, n := protowire.ConsumeBytes(value)
		if n < 0 {
			return protowire.ParseError(n)
		}
		return count(inner, field.Message(), left)
	case field.Cardinality() != protoreflect.Repeated:
	case typ == protowire.BytesType && field.Kind() != protoreflect.StringKind && field.Kind() != protoreflect.BytesKind:
		inner, n := protowire.ConsumeBytes(value)
		if n < 0 {
			return protowire.ParseError(n)
		}
		*left -= packed(inner, field.Kind())
	default:
		*left--
	}
	return nil
}

// packed returns the number of elements in a packed field.
func packed(raw []byte, kind protoreflect.Kind) int {
	switch kind {
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		return (len(raw) + 3) / 4
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		return (len(raw) + 7) / 8
	}
	n := 0
	for _, b := range raw {
		if b < 0x80 { // the last byte of a varint
			n++
		}
	}
	return n
}
