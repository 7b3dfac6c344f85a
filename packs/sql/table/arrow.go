package table

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/skerry-sandbox/skerry/packs/sql/database"
)

const (
	batchRows  = 10_000
	probeRows  = 1_000 // from which the types of columns without one are learned
	maxDigits  = 38    // of a decimal128
	dayFormat  = "2006-01-02"
	timeFormat = "15:04:05.999999"
)

// arrowWriter writes a file of Arrow (IPC, also called Feather 2), compressed with zstd.
type arrowWriter struct {
	out     *bounded
	columns []database.Column
	dynamic bool
	probed  [][]any
	builder *array.RecordBuilder
	w       *ipc.FileWriter
	rows    int // in the builder
	number  int
}

func (a *arrowWriter) Columns(list []database.Column) error {
	a.columns = slices.Clone(list)
	a.dynamic = slices.ContainsFunc(list, func(c database.Column) bool { return c.Kind == database.Dynamic })
	if a.dynamic {
		return nil
	}
	return a.begin()
}

// begin writes the schema.
func (a *arrowWriter) begin() error {
	fields := make([]arrow.Field, len(a.columns))
	for i, name := range Names(a.columns) {
		fields[i] = arrow.Field{Name: name, Type: typeOf(a.columns[i]), Nullable: true}
		if t := a.columns[i].Type; t != "" {
			fields[i].Metadata = arrow.NewMetadata([]string{"sql.type"}, []string{t})
		}
	}
	schema := arrow.NewSchema(fields, nil)
	a.builder = array.NewRecordBuilder(memory.NewGoAllocator(), schema)
	var err error
	a.w, err = ipc.NewFileWriter(a.out, ipc.WithSchema(schema), ipc.WithZstd())
	return err
}

func typeOf(c database.Column) arrow.DataType {
	switch c.Kind {
	case database.Bool:
		return arrow.FixedWidthTypes.Boolean
	case database.Int16:
		return arrow.PrimitiveTypes.Int16
	case database.Int32:
		return arrow.PrimitiveTypes.Int32
	case database.Int64:
		return arrow.PrimitiveTypes.Int64
	case database.Float32:
		return arrow.PrimitiveTypes.Float32
	case database.Float64:
		return arrow.PrimitiveTypes.Float64
	case database.Decimal:
		if c.Precision >= 1 && c.Precision <= maxDigits && c.Scale >= 0 && c.Scale <= c.Precision {
			return &arrow.Decimal128Type{Precision: int32(c.Precision), Scale: int32(c.Scale)} //nolint:gosec // they are small
		}
	case database.Bytes:
		return arrow.BinaryTypes.Binary
	case database.Date:
		return arrow.FixedWidthTypes.Date32
	case database.Time:
		return arrow.FixedWidthTypes.Time64us
	case database.Timestamp:
		return &arrow.TimestampType{Unit: arrow.Microsecond}
	case database.TimestampUTC:
		return arrow.FixedWidthTypes.Timestamp_us
	}
	return arrow.BinaryTypes.String
}

func (a *arrowWriter) Row(values []any) (bool, error) {
	if a.w == nil {
		a.probed = append(a.probed, slices.Clone(values))
		if len(a.probed) < probeRows {
			return true, nil
		}
		return true, a.settle()
	}
	return true, a.add(values)
}

// settle gives columns without a type the one that holds all values which came so far.
func (a *arrowWriter) settle() error {
	for i := range a.columns {
		if a.columns[i].Kind == database.Dynamic {
			a.columns[i].Kind = common(a.probed, i)
		}
	}
	if err := a.begin(); err != nil {
		return err
	}
	for _, row := range a.probed {
		if err := a.add(row); err != nil {
			return err
		}
	}
	a.probed = nil
	return nil
}

func common(rows [][]any, i int) database.Kind {
	found := database.Dynamic
	for _, row := range rows {
		k := database.Text
		switch row[i].(type) {
		case nil:
			continue
		case int64:
			k = database.Int64
		case float64:
			k = database.Float64
		case []byte:
			k = database.Bytes
		}
		switch {
		case found == database.Dynamic || found == k:
			found = k
		case found == database.Int64 && k == database.Float64, found == database.Float64 && k == database.Int64:
			found = database.Float64
		default:
			return database.Text
		}
	}
	if found == database.Dynamic { // NULL alone
		return database.Text
	}
	return found
}

func (a *arrowWriter) add(values []any) error {
	a.number++
	for i, v := range values {
		if err := put(a.builder.Field(i), v); err != nil {
			return fmt.Errorf("row %d, column %q: %w", a.number, a.columns[i].Name, err)
		}
	}
	if a.rows++; a.rows >= batchRows {
		return a.flush()
	}
	return nil
}

func (a *arrowWriter) flush() error {
	record := a.builder.NewRecordBatch()
	defer record.Release()
	a.rows = 0
	return a.w.Write(record)
}

func (a *arrowWriter) Close() error {
	if a.w == nil {
		if err := a.settle(); err != nil {
			return err
		}
	}
	defer a.builder.Release()
	if a.rows > 0 {
		if err := a.flush(); err != nil {
			return err
		}
	}
	return a.w.Close()
}

// put adds a value. One that the type does not have is an error: a cast in the statement makes a text of it.
func put(b array.Builder, v any) error {
	if v == nil {
		b.AppendNull()
		return nil
	}
	switch b := b.(type) {
	case *array.StringBuilder:
		b.Append(plain(v))
		return nil
	case *array.BinaryBuilder:
		if raw, ok := v.([]byte); ok {
			b.Append(raw)
			return nil
		}
	case *array.BooleanBuilder:
		if is, ok := v.(bool); ok {
			b.Append(is)
			return nil
		}
	case *array.Int16Builder, *array.Int32Builder, *array.Int64Builder, *array.Float32Builder, *array.Float64Builder:
		return putNumber(b, v)
	default:
		if text, ok := v.(string); ok {
			return putText(b, text)
		}
	}
	return misfit(v)
}

func misfit(v any) error {
	return fmt.Errorf("%.60q does not fit the values before it: cast the column to one type, or export as csv", plain(v))
}

func putNumber(b array.Builder, v any) error {
	n, whole := v.(int64)
	f, float := v.(float64)
	if whole {
		f = float64(n)
	}
	switch b := b.(type) {
	case *array.Float64Builder:
		if whole || float {
			b.Append(f)
			return nil
		}
	case *array.Float32Builder:
		if whole || float {
			b.Append(float32(f))
			return nil
		}
	case *array.Int64Builder:
		if whole {
			b.Append(n)
			return nil
		}
	case *array.Int32Builder:
		if whole {
			b.Append(int32(n)) //nolint:gosec // the database's own type
			return nil
		}
	case *array.Int16Builder:
		if whole {
			b.Append(int16(n)) //nolint:gosec // the same
			return nil
		}
	}
	return misfit(v)
}

// putText reads what PostgreSQL prints of decimals and times.
func putText(b array.Builder, text string) error {
	var err error
	var at time.Time
	switch b := b.(type) {
	case *array.Decimal128Builder:
		var n decimal128.Num
		t, _ := b.Type().(*arrow.Decimal128Type)
		if n, err = decimal128.FromString(text, t.Precision, t.Scale); err == nil {
			b.Append(n)
		}
	case *array.Date32Builder:
		if at, err = time.Parse(dayFormat, text); err == nil {
			b.Append(arrow.Date32FromTime(at))
		}
	case *array.Time64Builder:
		if at, err = time.Parse(timeFormat, text); err == nil {
			b.Append(arrow.Time64(at.Sub(at.Truncate(24 * time.Hour)).Microseconds()))
		}
	case *array.TimestampBuilder:
		layout := dayFormat + " " + timeFormat
		if t, _ := b.Type().(*arrow.TimestampType); t.TimeZone != "" {
			layout += "Z07"
		}
		if at, err = time.Parse(layout, text); err == nil {
			b.Append(arrow.Timestamp(at.UnixMicro()))
		}
	default:
		err = errors.New("no type of ours")
	}
	if err != nil {
		return errors.New(strconv.Quote(text) + " is no value that Arrow has for the type: cast the column to text, or export as csv")
	}
	return nil
}
