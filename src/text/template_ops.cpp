#include "text/template_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/quote.h"
#include "text/template_eval.h"

namespace halfbyte {
namespace {

const char* symbol(BinaryOp op) {
  switch (op) {
    case BinaryOp::kAdd: return "+";
    case BinaryOp::kSubtract: return "-";
    case BinaryOp::kMultiply: return "*";
    case BinaryOp::kDivide: return "/";
    case BinaryOp::kFloorDivide: return "//";
    case BinaryOp::kModulo: return "%";
    case BinaryOp::kPower: return "**";
  }
  return "?";
}

Status bad_operands(BinaryOp op, const TemplateValue& a, const TemplateValue& b) {
  return invalid_data(
      fmt::format("unsupported operand types for {}: '{}' and '{}'", symbol(op), type_name(a), type_name(b)));
}

Status overflow(BinaryOp op) {
  return unsupported(fmt::format(
      "the result of {} does not fit 64 bits; larger integers are outside the template subset", symbol(op)));
}

int64_t floor_mod(int64_t a, int64_t b) {
  if (b == -1) return 0;  // a % -1 overflows for the smallest integer
  const int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

double floor_mod(double a, double b) {
  double r = std::fmod(a, b);
  if (r != 0 && (r < 0) != (b < 0)) r += b;
  return r == 0 ? std::copysign(0.0, b) : r;
}

Result<TemplateValue> integer_power(int64_t a, int64_t b) {
  if (b < 0) {
    if (a == 0) return invalid_data("0 cannot be raised to a negative power");
    return TemplateValue::real(std::pow(static_cast<double>(a), static_cast<double>(b)));
  }
  int64_t out = 1;
  while (b > 0) {
    if ((b & 1) != 0 && __builtin_mul_overflow(out, a, &out)) return overflow(BinaryOp::kPower);
    b >>= 1;
    if (b > 0 && __builtin_mul_overflow(a, a, &a)) return overflow(BinaryOp::kPower);
  }
  return TemplateValue::integer(out);
}

Result<TemplateValue> integer_op(BinaryOp op, int64_t a, int64_t b) {
  int64_t out = 0;
  switch (op) {
    case BinaryOp::kAdd:
      if (__builtin_add_overflow(a, b, &out)) return overflow(op);
      return TemplateValue::integer(out);
    case BinaryOp::kSubtract:
      if (__builtin_sub_overflow(a, b, &out)) return overflow(op);
      return TemplateValue::integer(out);
    case BinaryOp::kMultiply:
      if (__builtin_mul_overflow(a, b, &out)) return overflow(op);
      return TemplateValue::integer(out);
    case BinaryOp::kPower: return integer_power(a, b);
    default: break;
  }
  if (b == 0) return invalid_data("division by zero");
  if (op == BinaryOp::kDivide) return TemplateValue::real(static_cast<double>(a) / static_cast<double>(b));
  if (op == BinaryOp::kModulo) return TemplateValue::integer(floor_mod(a, b));
  if (b == -1) return integer_op(BinaryOp::kSubtract, 0, a);
  return TemplateValue::integer(a / b - (a % b != 0 && (a % b < 0) != (b < 0)));
}

Result<TemplateValue> real_op(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd: return TemplateValue::real(a + b);
    case BinaryOp::kSubtract: return TemplateValue::real(a - b);
    case BinaryOp::kMultiply: return TemplateValue::real(a * b);
    case BinaryOp::kPower: {
      const double out = std::pow(a, b);
      if (std::isnan(out) && !std::isnan(a) && !std::isnan(b))
        return unsupported("a complex result is outside the template subset");
      if (std::isinf(out) && std::isfinite(a) && std::isfinite(b)) return invalid_data("the result of ** is too large");
      return TemplateValue::real(out);
    }
    default: break;
  }
  if (b == 0) return invalid_data("division by zero");
  if (op == BinaryOp::kDivide) return TemplateValue::real(a / b);
  if (op == BinaryOp::kModulo) return TemplateValue::real(floor_mod(a, b));
  return TemplateValue::real(std::floor((a - floor_mod(a, b)) / b + 0.5));
}

// The sequence `n` times.
Result<TemplateValue> repeat(TemplateBudget& budget, const TemplateValue& sequence, int64_t n) {
  const auto times = static_cast<uint64_t>(std::max<int64_t>(n, 0));
  if (sequence.is_string()) {
    if (sequence.text().empty()) return sequence;
    if (times > budget.limits().max_output_bytes / sequence.text().size()) return budget.take(UINT64_MAX);
    // In blocks: a character repeated millions of times is not millions of calls.
    const uint64_t in_block = std::min<uint64_t>(times, 1 + 4096 / sequence.text().size());
    MarkedText block;
    for (uint64_t i = 0; i < in_block; ++i) block.append(sequence.text());
    TextBuilder out(budget);
    uint64_t left = times;
    for (; left >= in_block && left > 0; left -= in_block) HB_TRY(out.append(block));
    for (; left > 0; --left) HB_TRY(out.append(sequence.text()));
    return std::move(out).value();
  }
  const TemplateList& list = sequence.list();
  std::vector<TemplateValue> items;
  if (!list.items.empty()) {
    const uint64_t most = budget.limits().max_output_bytes / (sizeof(TemplateValue) * list.items.size());
    if (times > most) return budget.take(UINT64_MAX);
    items.reserve(times * list.items.size());
    for (uint64_t i = 0; i < times; ++i) items.insert(items.end(), list.items.begin(), list.items.end());
  }
  return budget.list(std::move(items), list.flavor);
}

bool repeatable(const TemplateValue& v) {
  return v.is_string() || (v.is_list() && v.list().flavor != ListFlavor::kGenerator);
}

Result<TemplateValue> add_sequences(TemplateBudget& budget, const TemplateValue& a, const TemplateValue& b) {
  if (a.is_string() && b.is_string()) {
    TextBuilder out(budget);
    HB_TRY(out.append(a.text()));
    HB_TRY(out.append(b.text()));
    return std::move(out).value();
  }
  if (a.is_list() && b.is_list() && a.list().flavor == b.list().flavor && a.list().flavor != ListFlavor::kGenerator) {
    std::vector<TemplateValue> items = a.list().items;
    items.insert(items.end(), b.list().items.begin(), b.list().items.end());
    return budget.list(std::move(items), a.list().flavor);
  }
  return bad_operands(BinaryOp::kAdd, a, b);
}

// Python's slice.indices(): the first index, how many, and the step.
struct SliceRange {
  int64_t start = 0, count = 0, step = 1;
};

Result<SliceRange> slice_range(int64_t length, const TemplateValue* start, const TemplateValue* stop,
                               const TemplateValue* step) {
  const auto bound = [](const TemplateValue* v) { return v != nullptr && !v->is_none(); };
  for (const TemplateValue* v : {start, stop, step}) {
    if (!bound(v)) continue;
    if (v->is_undefined()) return invalid_data(v->undefined_text());
    if (!v->is_integral()) return invalid_data(fmt::format("a slice index is an integer, not '{}'", type_name(*v)));
  }
  SliceRange r;
  // A step beyond the length takes one item, however large it is.
  r.step = bound(step) ? std::clamp(step->as_int(), -length - 1, length + 1) : 1;
  if (r.step == 0) return invalid_data("the step of a slice is not 0");
  const bool back = r.step < 0;
  const auto clamp = [&](const TemplateValue* v, int64_t otherwise) {
    if (!bound(v)) return otherwise;
    int64_t i = v->as_int();
    if (i < 0) i = i < -length ? -1 : i + length;
    return back ? std::clamp<int64_t>(i, -1, length - 1) : std::clamp<int64_t>(i, 0, length);
  };
  r.start = clamp(start, back ? length - 1 : 0);
  const int64_t end = clamp(stop, back ? -1 : length);
  const int64_t distance = back ? r.start - end : end - r.start;
  const int64_t stride = back ? -r.step : r.step;
  r.count = distance <= 0 ? 0 : (distance + stride - 1) / stride;
  return r;
}

Result<TemplateValue> slice_string(TemplateBudget& budget, const MarkedText& text, const TemplateValue* start,
                                   const TemplateValue* stop, const TemplateValue* step) {
  const std::string_view bytes = text.bytes();
  HB_TRY(budget.spend_bytes(bytes.size()));
  const auto length = static_cast<int64_t>(utf8::length(bytes));
  HB_ASSIGN(const SliceRange r, slice_range(length, start, stop, step));
  const bool ascii = static_cast<size_t>(length) == bytes.size();
  std::vector<uint32_t> offsets;  // of each character, and the end
  if (!ascii) {
    offsets.reserve(static_cast<size_t>(length) + 1);
    for (size_t pos = 0; pos < bytes.size(); pos += utf8::char_bytes(bytes, pos))
      offsets.push_back(static_cast<uint32_t>(pos));
    offsets.push_back(static_cast<uint32_t>(bytes.size()));
  }
  const auto offset = [&](int64_t i) {
    return ascii ? static_cast<size_t>(i) : size_t{offsets[static_cast<size_t>(i)]};
  };
  if (r.step == 1) return budget.string(text.slice(offset(r.start), offset(r.start + r.count)));
  TextBuilder out(budget);
  for (int64_t i = 0, at = r.start; i < r.count; ++i, at += r.step)
    HB_TRY(out.append(text, offset(at), offset(at + 1)));
  return std::move(out).value();
}

// The character at an index, or undefined.
Result<TemplateValue> string_item(TemplateBudget& budget, const MarkedText& text, int64_t index) {
  const std::string_view bytes = text.bytes();
  HB_TRY(budget.spend_bytes(bytes.size()));
  const auto length = static_cast<int64_t>(utf8::length(bytes));
  if (index < 0) index += length;
  if (index < 0 || index >= length) return budget.undefined("the index is outside the string");
  size_t pos = 0;
  if (static_cast<size_t>(length) == bytes.size()) {
    pos = static_cast<size_t>(index);
  } else {
    for (int64_t i = 0; i < index; ++i) pos += utf8::char_bytes(bytes, pos);
  }
  return budget.string(text.slice(pos, pos + utf8::char_bytes(bytes, pos)));
}

}  // namespace

Result<TemplateValue> binary_op(TemplateBudget& budget, BinaryOp op, const TemplateValue& a, const TemplateValue& b) {
  if (op == BinaryOp::kModulo && a.is_string()) {
    return unsupported("formatting with '%' is outside the template subset");
  }
  if (a.is_undefined() || b.is_undefined()) return invalid_data((a.is_undefined() ? a : b).undefined_text());
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return integer_op(op, a.as_int(), b.as_int());
    return real_op(op, a.as_double(), b.as_double());
  }
  if (op == BinaryOp::kAdd) return add_sequences(budget, a, b);
  if (op == BinaryOp::kMultiply) {
    if (repeatable(a) && b.is_integral()) return repeat(budget, a, b.as_int());
    if (a.is_integral() && repeatable(b)) return repeat(budget, b, a.as_int());
  }
  return bad_operands(op, a, b);
}

Result<TemplateValue> negate(const TemplateValue& v) {
  if (v.is_undefined()) return invalid_data(v.undefined_text());
  if (v.is_integral()) return integer_op(BinaryOp::kSubtract, 0, v.as_int());
  if (v.kind() == TemplateKind::kDouble) return TemplateValue::real(-v.as_double());
  return invalid_data(fmt::format("bad operand type for unary -: '{}'", type_name(v)));
}

Result<bool> compare_op(TemplateBudget& budget, CompareOp op, const TemplateValue& a, const TemplateValue& b) {
  const auto invert = [](Result<bool> r) -> Result<bool> {
    if (!r.ok()) return r;
    return !*r;
  };
  const bool unordered = (a.kind() == TemplateKind::kDouble && std::isnan(a.as_double())) ||
                         (b.kind() == TemplateKind::kDouble && std::isnan(b.as_double()));
  switch (op) {
    case CompareOp::kEqual: return equal(budget, a, b);
    case CompareOp::kNotEqual: return invert(equal(budget, a, b));
    case CompareOp::kLess: return less(budget, a, b);
    case CompareOp::kGreater: return less(budget, b, a);
    case CompareOp::kLessEqual: return unordered ? Result<bool>(false) : invert(less(budget, b, a));
    case CompareOp::kGreaterEqual: return unordered ? Result<bool>(false) : invert(less(budget, a, b));
    case CompareOp::kIn: return contains(budget, b, a);
    case CompareOp::kNotIn: return invert(contains(budget, b, a));
  }
  return false;
}

Result<bool> contains(TemplateBudget& budget, const TemplateValue& container, const TemplateValue& item) {
  switch (container.kind()) {
    case TemplateKind::kUndefined: return false;
    case TemplateKind::kString:
      if (item.is_undefined()) return invalid_data(item.undefined_text());
      if (!item.is_string()) {
        return invalid_data(fmt::format("'in <string>' requires string as left operand, not '{}'", type_name(item)));
      }
      HB_TRY(budget.spend_bytes(container.bytes().size() + item.bytes().size()));
      return utf8::find(container.bytes(), item.bytes()) != std::string_view::npos;
    case TemplateKind::kDict: HB_TRY(budget.spend(1)); return container.dict().find(item) != nullptr;
    case TemplateKind::kList:
      for (const TemplateValue& v : container.list().items) {
        HB_ASSIGN(const bool same, equal(budget, v, item));
        if (same) return true;
      }
      return false;
    default: return invalid_data(fmt::format("'{}' is not a container", type_name(container)));
  }
}

Result<TemplateValue> get_item(TemplateBudget& budget, const TemplateValue& object, const TemplateValue& index) {
  HB_TRY(budget.spend(1));
  switch (object.kind()) {
    case TemplateKind::kUndefined: return invalid_data(object.undefined_text());
    case TemplateKind::kDict:
      if (const TemplateValue* v = object.dict().find(index); v != nullptr) return *v;
      break;
    case TemplateKind::kList:
      if (index.is_integral() && object.list().flavor != ListFlavor::kGenerator) {
        const auto& items = object.list().items;
        int64_t i = index.as_int();
        if (i < 0) i += static_cast<int64_t>(items.size());
        if (i >= 0 && i < static_cast<int64_t>(items.size())) return items[static_cast<size_t>(i)];
      }
      break;
    case TemplateKind::kString:
      if (index.is_integral()) return string_item(budget, object.text(), index.as_int());
      break;
    default: break;
  }
  if (index.is_string()) {
    return budget.undefined(fmt::format("'{}' has no attribute {}", type_name(object), quote(index.bytes())));
  }
  return budget.undefined(fmt::format("'{}' has no such item", type_name(object)));
}

Result<TemplateValue> get_slice(TemplateBudget& budget, const TemplateValue& object, const TemplateValue* start,
                                const TemplateValue* stop, const TemplateValue* step) {
  if (object.is_undefined()) return invalid_data(object.undefined_text());
  if (object.is_string()) return slice_string(budget, object.text(), start, stop, step);
  if (!object.is_list() || object.list().flavor == ListFlavor::kGenerator) {
    return invalid_data(fmt::format("'{}' object cannot be sliced", type_name(object)));
  }
  const auto& items = object.list().items;
  HB_ASSIGN(const SliceRange r, slice_range(static_cast<int64_t>(items.size()), start, stop, step));
  std::vector<TemplateValue> out;
  out.reserve(static_cast<size_t>(r.count));
  for (int64_t i = 0, at = r.start; i < r.count; ++i, at += r.step) out.push_back(items[static_cast<size_t>(at)]);
  return budget.list(std::move(out), object.list().flavor);
}

Result<std::shared_ptr<const TemplateList>> iterate(TemplateBudget& budget, const TemplateValue& v) {
  if (v.is_list()) return v.shared_list();
  std::vector<TemplateValue> items;
  if (v.is_dict()) {
    for (const auto& entry : v.dict().items) items.push_back(entry.first);
  } else if (v.is_string()) {
    const MarkedText& text = v.text();
    // A character becomes a value of its own: refuse before making millions of them.
    HB_TRY(budget.spend(text.size()));
    for (size_t pos = 0; pos < text.size();) {
      const size_t end = pos + utf8::char_bytes(text.bytes(), pos);
      HB_ASSIGN(TemplateValue c, budget.string(text.slice(pos, end)));
      items.push_back(std::move(c));
      pos = end;
    }
  } else if (!v.is_undefined()) {
    return invalid_data(fmt::format("'{}' object is not iterable", type_name(v)));
  }
  HB_ASSIGN(const TemplateValue list, budget.list(std::move(items)));
  return list.shared_list();
}

Result<int64_t> length_of(TemplateBudget& budget, const TemplateValue& v) {
  switch (v.kind()) {
    case TemplateKind::kUndefined: return 0;
    case TemplateKind::kString:
      HB_TRY(budget.spend_bytes(v.bytes().size()));
      return static_cast<int64_t>(utf8::length(v.bytes()));
    case TemplateKind::kDict: return static_cast<int64_t>(v.dict().items.size());
    case TemplateKind::kList:
      if (v.list().flavor != ListFlavor::kGenerator) return static_cast<int64_t>(v.list().items.size());
      break;
    default: break;
  }
  return invalid_data(fmt::format("object of type '{}' has no length", type_name(v)));
}

}  // namespace halfbyte
