#include "text/template_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/template_eval.h"

namespace halfbyte {
namespace {

// Dictionaries with fewer entries are searched one by one.
constexpr size_t kIndexFrom = 12;
// Bytes charged for a shared object beside its contents.
constexpr uint64_t kObjectBytes = 96;

uint32_t depth_of(const TemplateValue& v) {
  if (v.is_list()) return v.list().depth;
  if (v.is_dict()) return v.dict().depth;
  if (v.kind() != TemplateKind::kCallable) return 0;
  // A method holds its object, a loop its items.
  const TemplateCallable& f = v.callable();
  return f.loop != nullptr ? f.loop->items->depth : depth_of(f.self);
}

// One text for all keys that Python holds equal; nothing for what cannot be a key here.
std::optional<std::string> encode_key(const TemplateValue& key) {
  if (key.is_string()) return "s" + key.bytes();
  if (key.is_none()) return "z";
  if (key.is_integral()) return fmt::format("n{}", key.as_int());
  if (key.kind() == TemplateKind::kDouble) {
    const double d = key.as_double();
    if (std::floor(d) == d && std::abs(d) < 9.0e18) return fmt::format("n{}", static_cast<int64_t>(d));
    return fmt::format("d{}", d);
  }
  return std::nullopt;
}

Result<bool> equal_at(TemplateBudget& budget, const TemplateValue& a, const TemplateValue& b);

Result<bool> equal_lists(TemplateBudget& budget, const TemplateList& a, const TemplateList& b) {
  if (a.flavor != b.flavor || a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    HB_ASSIGN(const bool same, equal_at(budget, a.items[i], b.items[i]));
    if (!same) return false;
  }
  return true;
}

Result<bool> equal_dicts(TemplateBudget& budget, const TemplateDict& a, const TemplateDict& b) {
  if (a.items.size() != b.items.size()) return false;
  for (const auto& [key, value] : a.items) {
    HB_TRY(budget.spend(1));
    const TemplateValue* other = b.find(key);
    if (other == nullptr) return false;
    HB_ASSIGN(const bool same, equal_at(budget, value, *other));
    if (!same) return false;
  }
  return true;
}

bool equal_numbers(const TemplateValue& a, const TemplateValue& b) {
  if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
  return a.as_double() == b.as_double();
}

Result<bool> equal_at(TemplateBudget& budget, const TemplateValue& a, const TemplateValue& b) {
  HB_TRY(budget.spend(1));
  if (a.is_number() && b.is_number()) return equal_numbers(a, b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case TemplateKind::kUndefined:
    case TemplateKind::kNone: return true;
    case TemplateKind::kString: {
      if (a.bytes().size() != b.bytes().size()) return false;
      HB_TRY(budget.spend_bytes(a.bytes().size()));
      return a.bytes() == b.bytes();
    }
    case TemplateKind::kList: return equal_lists(budget, a.list(), b.list());
    case TemplateKind::kDict: return equal_dicts(budget, a.dict(), b.dict());
    case TemplateKind::kNamespace: return &a.name_space() == &b.name_space();
    case TemplateKind::kCallable: return &a.callable() == &b.callable();
    default: return false;
  }
}

}  // namespace

TemplateCharge::~TemplateCharge() {
  if (budget_ != nullptr) budget_->give(bytes_);
}

TemplateValue TemplateValue::constant(std::string text) {
  return TemplateValue(std::make_shared<const TemplateString>(TemplateString{MarkedText(std::move(text)), {}}));
}

std::string TemplateValue::undefined_text() const {
  const auto* what = std::get_if<0>(&data_);
  return what != nullptr && *what != nullptr ? (*what)->text.bytes() : "a value is undefined";
}

const TemplateValue* TemplateDict::find_encoded(std::string_view key) const {
  const auto it = index_.find(std::string(key));
  return it == index_.end() ? nullptr : &items[it->second].second;
}

const TemplateValue* TemplateDict::find(std::string_view key) const {
  if (items.size() >= kIndexFrom) return find_encoded("s" + std::string(key));
  for (const auto& [k, v] : items) {
    if (k.is_string() && k.bytes() == key) return &v;
  }
  return nullptr;
}

const TemplateValue* TemplateDict::find(const TemplateValue& key) const {
  if (key.is_string()) return find(std::string_view(key.bytes()));
  const auto encoded = encode_key(key);
  if (!encoded) return nullptr;
  if (items.size() >= kIndexFrom) return find_encoded(*encoded);
  for (const auto& [k, v] : items) {
    if (encode_key(k) == encoded) return &v;
  }
  return nullptr;
}

bool TemplateDict::insert(TemplateValue key, TemplateValue value) {
  if (const TemplateValue* old = find(key); old != nullptr) {
    *const_cast<TemplateValue*>(old) = std::move(value);
    return true;
  }
  auto encoded = encode_key(key);
  if (!encoded) return false;
  items.emplace_back(std::move(key), std::move(value));
  if (items.size() == kIndexFrom) {
    for (size_t i = 0; i < items.size(); ++i) index_.emplace(*encode_key(items[i].first), i);
  } else if (items.size() > kIndexFrom) {
    index_.emplace(std::move(*encoded), items.size() - 1);
  }
  return true;
}

Status TemplateBudget::spend(uint64_t steps) {
  if (steps > steps_left_) {
    steps_left_ = 0;
    return resource_exhausted(
        fmt::format("rendering took more than {} steps; the template loops too much", limits_.max_steps));
  }
  steps_left_ -= steps;
  return {};
}

Status TemplateBudget::take(uint64_t bytes) {
  if (bytes > bytes_left_) {
    return resource_exhausted(
        fmt::format("the output and the values on the way need more than {} bytes", limits_.max_output_bytes));
  }
  bytes_left_ -= bytes;
  return {};
}

Result<TemplateValue> TemplateBudget::string(MarkedText text) {
  const uint64_t bytes = kObjectBytes + text.held_bytes();
  HB_TRY(spend_bytes(bytes));
  HB_TRY(take(bytes));
  return TemplateValue(std::make_shared<const TemplateString>(TemplateString{std::move(text), {this, bytes}}));
}

Result<TemplateValue> TemplateBudget::list(std::vector<TemplateValue> items, ListFlavor flavor) {
  const uint64_t bytes = kObjectBytes + items.size() * sizeof(TemplateValue);
  HB_TRY(spend_bytes(bytes));
  auto list = std::make_shared<TemplateList>();
  for (const TemplateValue& v : items) list->depth = std::max(list->depth, 1 + depth_of(v));
  if (list->depth > kMaxValueDepth) {
    return resource_exhausted(fmt::format("values are nested deeper than {}", kMaxValueDepth));
  }
  HB_TRY(take(bytes));
  list->items = std::move(items);
  list->flavor = flavor;
  list->charge = TemplateCharge(this, bytes);
  return TemplateValue(std::shared_ptr<const TemplateList>(std::move(list)));
}

Result<TemplateValue> TemplateBudget::dict(std::vector<std::pair<TemplateValue, TemplateValue>> items) {
  auto dict = std::make_shared<TemplateDict>();
  uint64_t bytes = kObjectBytes + items.size() * 2 * sizeof(TemplateValue);
  for (auto& [key, value] : items) {
    dict->depth = std::max(dict->depth, 1 + depth_of(value));
    if (key.is_string()) bytes += key.bytes().size();  // the index holds a copy
    if (!dict->insert(key, std::move(value))) {
      return unsupported(fmt::format("a dictionary key of type '{}' is outside the template subset", type_name(key)));
    }
  }
  if (dict->depth > kMaxValueDepth) {
    return resource_exhausted(fmt::format("values are nested deeper than {}", kMaxValueDepth));
  }
  HB_TRY(spend_bytes(bytes));
  HB_TRY(take(bytes));
  dict->charge = TemplateCharge(this, bytes);
  return TemplateValue(std::shared_ptr<const TemplateDict>(std::move(dict)));
}

TemplateValue TemplateBudget::undefined(std::string what) {
  const uint64_t bytes = kObjectBytes + what.size();
  if (!take(bytes).ok()) return TemplateValue();
  return TemplateValue::undefined(
      std::make_shared<const TemplateString>(TemplateString{MarkedText(std::move(what)), {this, bytes}}));
}

Status TextBuilder::reserve(size_t more) {
  // Charged in growing blocks; an edge between runs costs a few bytes more, which the block's rounding covers.
  const uint64_t need = text_.held_bytes() + more + 2 * sizeof(uint32_t);
  if (need <= charged_) return {};
  const uint64_t block = need - charged_ + std::min<uint64_t>(need / 4, 1 << 16);
  Status exact = budget_.take(block);
  if (!exact.ok()) {
    HB_TRY(budget_.take(need - charged_));
    charged_ = need;
    return {};
  }
  charged_ += block;
  return {};
}

std::string_view type_name(const TemplateValue& v) {
  switch (v.kind()) {
    case TemplateKind::kUndefined: return "Undefined";
    case TemplateKind::kNone: return "NoneType";
    case TemplateKind::kBool: return "bool";
    case TemplateKind::kInt: return "int";
    case TemplateKind::kDouble: return "float";
    case TemplateKind::kString: return "str";
    case TemplateKind::kList:
      return v.list().flavor == ListFlavor::kList    ? "list"
             : v.list().flavor == ListFlavor::kTuple ? "tuple"
                                                     : "generator";
    case TemplateKind::kDict: return "dict";
    case TemplateKind::kNamespace: return "Namespace";
    case TemplateKind::kCallable: return "function";
  }
  return "?";
}

bool truth(const TemplateValue& v) {
  switch (v.kind()) {
    case TemplateKind::kUndefined:
    case TemplateKind::kNone: return false;
    case TemplateKind::kBool:
    case TemplateKind::kInt: return v.as_int() != 0;
    case TemplateKind::kDouble: return v.as_double() != 0;
    case TemplateKind::kString: return !v.bytes().empty();
    case TemplateKind::kList: return v.list().flavor == ListFlavor::kGenerator || !v.list().items.empty();
    case TemplateKind::kDict: return !v.dict().items.empty();
    default: return true;
  }
}

Result<bool> equal(TemplateBudget& budget, const TemplateValue& a, const TemplateValue& b) {
  return equal_at(budget, a, b);
}

Result<bool> less(TemplateBudget& budget, const TemplateValue& a, const TemplateValue& b) {
  HB_TRY(budget.spend(1));
  if (a.is_number() && b.is_number()) {
    return a.is_integral() && b.is_integral() ? a.as_int() < b.as_int() : a.as_double() < b.as_double();
  }
  if (a.is_string() && b.is_string()) {
    // UTF-8 orders like code points, which is Python's order.
    HB_TRY(budget.spend_bytes(std::min(a.bytes().size(), b.bytes().size())));
    return a.bytes() < b.bytes();
  }
  if (a.is_list() && b.is_list() && a.list().flavor == b.list().flavor && a.list().flavor != ListFlavor::kGenerator) {
    const auto& x = a.list().items;
    const auto& y = b.list().items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      HB_ASSIGN(const bool same, equal_at(budget, x[i], y[i]));
      if (!same) return less(budget, x[i], y[i]);
    }
    return x.size() < y.size();
  }
  if (a.is_undefined() || b.is_undefined()) {
    return invalid_data((a.is_undefined() ? a : b).undefined_text());
  }
  return invalid_data(fmt::format("'{}' and '{}' have no order", type_name(a), type_name(b)));
}

}  // namespace halfbyte
