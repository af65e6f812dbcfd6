// Operators of the template language on values, with Python's meaning and Jinja's leniency for missing items.
#pragma once

#include <memory>

#include "text/template_ast.h"
#include "text/template_value.h"

namespace halfbyte {

Result<TemplateValue> binary_op(TemplateBudget& budget, BinaryOp op, const TemplateValue& a, const TemplateValue& b);
Result<TemplateValue> negate(const TemplateValue& v);
Result<bool> compare_op(TemplateBudget& budget, CompareOp op, const TemplateValue& a, const TemplateValue& b);
Result<bool> contains(TemplateBudget& budget, const TemplateValue& container, const TemplateValue& item);

// object[index]; undefined when there is no such item.
Result<TemplateValue> get_item(TemplateBudget& budget, const TemplateValue& object, const TemplateValue& index);
// object[start:stop:step]; null bounds are not given.
Result<TemplateValue> get_slice(TemplateBudget& budget, const TemplateValue& object, const TemplateValue* start,
                                const TemplateValue* stop, const TemplateValue* step);
// What a for loop sees: a list's items, a dictionary's keys, a string's characters, nothing for undefined.
Result<std::shared_ptr<const TemplateList>> iterate(TemplateBudget& budget, const TemplateValue& v);
// len(); an error for what has none.
Result<int64_t> length_of(TemplateBudget& budget, const TemplateValue& v);

}  // namespace halfbyte
