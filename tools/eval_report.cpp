#include "eval_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "json_text.h"

namespace halfbyte::tools {
namespace {

using Json = nlohmann::ordered_json;

std::string with_interval(const Interval& i, const char* format) {
  return fmt::format(fmt::runtime(fmt::format("{0} [{0}, {0}]", format)), i.mean, i.low, i.high);
}

// "" for none.
std::string with_interval(const std::optional<Interval>& i, const char* format) {
  return i ? with_interval(*i, format) : "";
}

Json interval_json(const Interval& i) {
  return {{"mean", i.mean}, {"ci95", {i.low, i.high}}};
}

Json side_json(const Side& s) {
  return {{"accuracy", s.accuracy},   {"reasoning_tokens", s.reasoning_tokens},
          {"tokens", s.tokens},       {"steps", s.steps},
          {"repeated", s.repeated},   {"alike", s.alike},
          {"truncated", s.truncated}, {"looped", s.looped}};
}

Json forced_json(const ForcedSummary& s) {
  return {{"tokens", s.tokens},
          {"mismatch", s.mismatch},
          {"divergence", s.divergence},
          {"quarter_from", s.quarter_from},
          {"quarter_mismatch", s.quarter_mismatch},
          {"quarter_divergence", s.quarter_divergence},
          {"quarter_tail_ratio", s.quarter_tail},
          {"symbols", s.symbols},
          {"symbolic_error_reference", s.symbolic_error_reference},
          {"symbolic_error", s.symbolic_error},
          {"uncertain_tokens", s.uncertain},
          {"top_reference", s.top_reference},
          {"top", s.top},
          {"entropy_reference", s.entropy_reference},
          {"entropy", s.entropy},
          {"drawn_top_reference", s.drawn_top_reference},
          {"drawn_top", s.drawn_top},
          {"drawn_entropy_reference", s.drawn_entropy_reference},
          {"drawn_entropy", s.drawn_entropy},
          {"above_half_nat_reference", s.above_half_nat_reference},
          {"above_half_nat", s.above_half_nat}};
}

std::string accuracy_table(const TaskResults& task) {
  std::string out =
      "| plan | accuracy | change | reasoning tokens | CTIR | paired ratio | tokens saved | steps | repeated | alike | "
      "truncated | looped | tokens/s | serving penalty |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const PlanResult& p : task.plans) {
    out += fmt::format("| {} | {} |", p.plan, with_interval(p.own.accuracy, "{:.3f}"));
    const std::string rate = p.tokens_per_s > 0 ? fmt::format(" {:.0f}", p.tokens_per_s) : "";
    if (p.versus) {
      const Comparison& c = *p.versus;
      out += fmt::format(" {} | {:.0f} | {} | {} | {} | {:.1f} | {:.3f} | {:.3f} | {:.3f} | {:.3f} |{} |{} |\n",
                         with_interval(c.change, "{:+.3f}"), p.own.reasoning_tokens, with_interval(c.ctir, "{:.3f}"),
                         c.paired_ratio ? fmt::format("{:.3f}", *c.paired_ratio) : "",
                         with_interval(c.tokens_saved, "{:+.3f}"), c.other.steps, c.other.repeated, c.other.alike,
                         c.other.truncated, c.other.looped, rate,
                         p.serving_penalty ? fmt::format(" {:.3f}", *p.serving_penalty) : "");
    } else {
      const PlanResult* other = task.plans.size() > 1 ? &task.plans[1] : nullptr;
      const Side side = other != nullptr && other->versus ? other->versus->reference : Side{};
      out +=
          fmt::format(" | {:.0f} | | | | {:.1f} | {:.3f} | {:.3f} | {:.3f} | {:.3f} |{} | |\n", p.own.reasoning_tokens,
                      side.steps, side.repeated, side.alike, p.own.truncated, p.own.looped, rate);
    }
  }
  return out;
}

std::string quarters(const std::array<double, 4>& values, const char* format) {
  std::string out;
  for (const double v : values) out += (out.empty() ? "" : ", ") + fmt::format(fmt::runtime(format), v);
  return out;
}

std::string forced_table(const TaskResults& task) {
  if (task.plans.empty() || !task.plans.front().forced) return "";
  const ForcedSummary& r = *task.plans.front().forced;
  std::string out = fmt::format(
      "\nTeacher forcing on {} of the first plan's texts; quarters of its entropy begin at {} nats; {:.1f}% of "
      "its "
      "tokens are above 0.5; symbols: {}, tokens of uncertain steps: {}.\n\n"
      "| plan | mismatch by quarter | tail-mass ratio by quarter | KL by quarter | symbolic error | top-1 in uncertain "
      "steps "
      "| entropy there | top-1 there as drawn | entropy as drawn |\n|---|---|---|---|---|---|---|---|---|\n",
      counted(r.tokens, "token"), quarters(r.quarter_from, "{:.2g}"), 100 * r.above_half_nat_reference, r.symbols,
      r.uncertain);
  for (const PlanResult& p : task.plans) {
    if (!p.forced) continue;
    const ForcedSummary& s = *p.forced;
    out += fmt::format("| {} | {} | {} | {} | {:.2e} | {:.3f} | {:.3f} | {:.3f} | {:.3f} |\n", p.plan,
                       quarters(s.quarter_mismatch, "{:.4f}"), quarters(s.quarter_tail, "{:.2f}"),
                       quarters(s.quarter_divergence, "{:.2g}"), s.symbolic_error, s.top, s.entropy, s.drawn_top,
                       s.drawn_entropy);
  }
  return out;
}

std::string length_table(const TaskResults& task) {
  if (task.plans.size() < 2 || !task.plans[1].versus) return "";
  std::string head = "\n| accuracy by reasoning tokens of the first plan |", line = "\n|---|", out;
  const auto& bins = task.plans[1].versus->by_length;
  for (const LengthBin& b : bins) {
    head += fmt::format(" {} to {} |", b.from, b.to);
    line += "---|";
  }
  out = head + line + fmt::format("\n| {} |", task.plans.front().plan);
  for (const LengthBin& b : bins) out += fmt::format(" {:.3f} |", b.reference);
  out += "\n";
  for (const PlanResult& p : task.plans) {
    if (!p.versus) continue;
    out += fmt::format("| {} |", p.plan);
    for (const LengthBin& b : p.versus->by_length) out += fmt::format(" {:.3f} |", b.other);
    out += "\n";
  }
  return out;
}

// --- the page ---

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out += c;
    }
  }
  return out;
}

struct Bar {
  std::string name;
  Interval value;  // low == high: no whisker
};

// Horizontal bars from 0 (or `base`) with whiskers.
std::string bar_chart(const std::string& title, const std::vector<Bar>& bars, double base, const char* format) {
  double least = base, most = base;
  for (const Bar& b : bars) {
    least = std::min({least, b.value.low, b.value.mean});
    most = std::max({most, b.value.high, b.value.mean});
  }
  if (most == least) most = least + 1;
  constexpr double kLeft = 190, kWidth = 420, kRow = 20;
  const auto x = [&](double v) { return kLeft + kWidth * (v - least) / (most - least); };
  std::string out = fmt::format("<figure><figcaption>{}</figcaption><svg viewBox='0 0 700 {}' role='img'>",
                                escaped(title), kRow * static_cast<double>(bars.size()) + 6);
  double y = 3;
  for (const Bar& b : bars) {
    const double from = std::min(x(base), x(b.value.mean)), to = std::max(x(base), x(b.value.mean));
    out += fmt::format(
        "<text x='{:.0f}' y='{:.1f}' text-anchor='end'>{}</text><rect x='{:.1f}' y='{:.1f}' width='{:.1f}' "
        "height='13'/>",
        kLeft - 6, y + 11, escaped(b.name), from, y, std::max(to - from, 1.0));
    if (b.value.low != b.value.high) {
      out += fmt::format("<line x1='{:.1f}' x2='{:.1f}' y1='{:.1f}' y2='{:.1f}'/>", x(b.value.low), x(b.value.high),
                         y + 6.5, y + 6.5);
    }
    out += fmt::format("<text x='{:.0f}' y='{:.1f}'>{}</text>", kLeft + kWidth + 8, y + 11,
                       fmt::format(fmt::runtime(format), b.value.mean));
    y += kRow;
  }
  return out + "</svg></figure>";
}

// One small histogram a plan, all with the same edges.
std::string histograms(const std::string& title, const std::vector<std::pair<std::string, std::vector<int64_t>>>& rows,
                       const std::vector<std::string>& edges) {
  std::string out = fmt::format("<figure><figcaption>{}</figcaption><table class='h'><tr><th></th>", escaped(title));
  for (const std::string& e : edges) out += fmt::format("<th>{}</th>", e);
  out += "</tr>";
  for (const auto& [name, counts] : rows) {
    int64_t total = 0;
    for (const int64_t c : counts) total += c;
    out += fmt::format("<tr><td>{}</td>", escaped(name));
    for (const int64_t c : counts) {
      const double share = total > 0 ? static_cast<double>(c) / static_cast<double>(total) : 0;
      out += fmt::format("<td style='background:rgba(40,90,160,{:.3f})'>{:.1f}</td>", std::min(1.0, share * 1.6),
                         100 * share);
    }
    out += "</tr>";
  }
  return out + "</table></figure>";
}

std::string length_histograms(const TaskResults& task) {
  int64_t longest = 1;
  for (const PlanResult& p : task.plans)
    for (const int64_t n : p.lengths) longest = std::max(longest, n);
  constexpr int64_t kBins = 10;
  const int64_t width = longest / kBins + 1;
  std::vector<std::string> edges;
  for (int64_t i = 0; i < kBins; ++i) edges.push_back(fmt::format("{}+", i * width));
  std::vector<std::pair<std::string, std::vector<int64_t>>> rows;
  for (const PlanResult& p : task.plans) {
    std::vector<int64_t> counts(kBins);
    for (const int64_t n : p.lengths) ++counts[static_cast<size_t>(n / width)];
    rows.emplace_back(p.plan, counts);
  }
  return histograms("reasoning tokens, % of the samples", rows, edges);
}

std::string task_figures(const TaskResults& task) {
  std::vector<Bar> accuracy, change, ctir, error;
  std::vector<std::pair<std::string, std::vector<int64_t>>> entropies;
  std::string damage;
  for (const PlanResult& p : task.plans) {
    accuracy.push_back({p.plan, p.own.accuracy});
    if (p.versus) change.push_back({p.plan, p.versus->change});
    if (p.versus && p.versus->ctir) ctir.push_back({p.plan, *p.versus->ctir});
    if (!p.forced) continue;
    const ForcedSummary& s = *p.forced;
    error.push_back({p.plan, {s.symbolic_error, s.symbolic_error, s.symbolic_error}});
    entropies.emplace_back(p.plan, p.entropy_histogram);
    std::vector<Bar> quarter;
    for (size_t q = 0; q < 4; ++q) {
      const double v = s.quarter_tail[q];
      quarter.push_back({fmt::format("quarter {} (from {:.1g} nats)", q + 1, s.quarter_from[q]), {v, v, v}});
    }
    if (&p != &task.plans.front()) damage += bar_chart("tail-mass ratio by entropy: " + p.plan, quarter, 1, "{:.2f}");
  }
  std::string out = bar_chart("accuracy", accuracy, 0, "{:.3f}");
  if (!change.empty()) out += bar_chart("change of the accuracy", change, 0, "{:+.3f}");
  if (!ctir.empty()) out += bar_chart("CTIR", ctir, 1, "{:.3f}");
  out += length_histograms(task);
  if (error.empty()) return out;
  std::vector<std::string> edges;
  for (const double e : kEntropyEdges) edges.push_back(fmt::format("{:g}+", e));
  return out + bar_chart("symbolic error", error, 0, "{:.2e}") +
         histograms("entropy with the first plan's texts, % of the tokens, by nats", entropies, edges) + damage;
}

// The tables of Markdown as HTML.
std::string html_tables(const std::string& markdown) {
  std::string out;
  bool table = false;
  size_t at = 0;
  while (at < markdown.size()) {
    const size_t end = std::min(markdown.find('\n', at), markdown.size());
    const std::string line = markdown.substr(at, end - at);
    at = end + 1;
    const bool row = line.starts_with("|");
    if (row != table) out += row ? "<table>" : "</table>";
    const bool head = row && !table;
    table = row;
    if (!row) {
      if (!line.empty()) out += "<p>" + escaped(line) + "</p>";
      continue;
    }
    if (line.starts_with("|---")) continue;
    std::string cells = escaped(line.substr(1, line.find_last_of('|') - 1));
    const std::string open = head ? "<th>" : "<td>", close = head ? "</th>" : "</td>";
    for (size_t bar = cells.find('|'); bar != std::string::npos;
         bar = cells.find('|', bar + close.size() + open.size()))
      cells.replace(bar, 1, close + open);
    out += "<tr>" + open + cells + close + "</tr>";
  }
  return out + (table ? "</table>" : "");
}

std::string task_markdown(const TaskResults& task) {
  return accuracy_table(task) + forced_table(task) + length_table(task);
}

Json comparison_json(const Comparison& c) {
  Json bins = Json::array();
  for (const LengthBin& b : c.by_length)
    bins.push_back(
        {{"from", b.from}, {"to", b.to}, {"samples", b.samples}, {"reference", b.reference}, {"other", b.other}});
  return {{"questions", c.questions},
          {"samples", c.samples},
          {"change", interval_json(c.change)},
          {"ctir", c.ctir ? interval_json(*c.ctir) : Json()},
          {"paired_ratio", c.paired_ratio ? Json(*c.paired_ratio) : Json()},
          {"tokens_saved", interval_json(c.tokens_saved)},
          {"reference", side_json(c.reference)},
          {"other", side_json(c.other)},
          {"by_length", bins}};
}

}  // namespace

std::string comparisons_json(const std::string& reference, const std::vector<NamedComparison>& compared) {
  Json rows = Json::array();
  for (const NamedComparison& c : compared) {
    Json row{{"file", c.name}};
    if (!c.note.empty()) row["note"] = c.note;
    row.update(comparison_json(c.comparison));
    if (c.serving_penalty) row["serving_penalty"] = *c.serving_penalty;
    rows.push_back(std::move(row));
  }
  return json_text(Json{{"reference", reference}, {"compared", rows}});
}

std::string report_json(const SweepReport& report) {
  Json tasks = Json::array();
  for (const TaskResults& task : report.tasks) {
    Json plans = Json::array();
    for (const PlanResult& p : task.plans) {
      Json row{{"plan", p.plan},
               {"n", p.own.questions},
               {"samples", p.own.samples},
               {"accuracy", interval_json(p.own.accuracy)},
               {"majority", p.own.majority},
               {"reasoning_tokens_mean", p.own.reasoning_tokens},
               {"truncated", p.own.truncated},
               {"looped", p.own.looped},
               {"tokens_per_s", p.tokens_per_s}};
      if (p.versus) row["versus_first"] = comparison_json(*p.versus);
      if (p.serving_penalty) row["serving_penalty"] = *p.serving_penalty;
      if (p.forced) row["forced"] = forced_json(*p.forced);
      plans.push_back(std::move(row));
    }
    tasks.push_back({{"task", task.task}, {"plans", plans}});
  }
  return json_text(Json{{"title", report.title}, {"facts", report.facts}, {"tasks", tasks}});
}

std::string report_markdown(const SweepReport& report) {
  std::string out = "# " + report.title + "\n\n";
  for (const std::string& fact : report.facts) out += "- " + fact + "\n";
  for (const TaskResults& task : report.tasks) out += "\n## " + task.task + "\n\n" + task_markdown(task);
  return out;
}

std::string report_html(const SweepReport& report) {
  std::string out = fmt::format(
      "<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
      "<title>{0}</title><style>body{{font:14px/1.45 system-ui,sans-serif;max-width:76rem;margin:1rem auto;padding:0 "
      "1rem;color:#1b1f24;background:#fff}}table{{border-collapse:collapse;margin:.6rem "
      "0;display:block;overflow-x:auto}}"
      "td,th{{border:1px solid #d0d7de;padding:2px "
      "7px;text-align:left;white-space:nowrap}}figure{{display:inline-block;"
      "vertical-align:top;margin:.5rem 1rem .5rem 0;width:36rem;max-width:100%}}figcaption{{font-weight:600}}"
      "svg text{{font-size:12px}}rect{{fill:#2c5aa0}}line{{stroke:#b3261e;stroke-width:2}}</style><h1>{0}</h1><ul>",
      escaped(report.title));
  for (const std::string& fact : report.facts) out += "<li>" + escaped(fact) + "</li>";
  out += "</ul>";
  for (const TaskResults& task : report.tasks)
    out += "<h2>" + escaped(task.task) + "</h2>" + html_tables(task_markdown(task)) + task_figures(task);
  return out + "</html>\n";
}

std::string comparison_text(const NamedComparison& compared) {
  const Comparison& c = compared.comparison;
  std::string out = fmt::format(
      "{}: {}, {} in both\n"
      "{}"
      "accuracy          {:.4f} -> {:.4f}   {}\n"
      "reasoning tokens  {:.1f} -> {:.1f}{}\n"
      "tokens saved      {}\n"
      "steps             {:.2f} -> {:.2f}\n"
      "repeated 4-grams  {:.4f} -> {:.4f}\n"
      "alike steps       {:.4f} -> {:.4f}\n"
      "truncated         {:.4f} -> {:.4f}\n"
      "looped            {:.4f} -> {:.4f}\n",
      compared.name, counted(c.questions, "question"), counted(c.samples, "sample"),
      compared.note.empty() ? "" : "note: " + compared.note + "\n", c.reference.accuracy, c.other.accuracy,
      with_interval(c.change, "{:+.4f}"), c.reference.reasoning_tokens, c.other.reasoning_tokens,
      c.ctir && c.paired_ratio
          ? fmt::format("   CTIR {}, paired {:.3f}", with_interval(*c.ctir, "{:.3f}"), *c.paired_ratio)
          : "",
      with_interval(c.tokens_saved, "{:+.3f}"), c.reference.steps, c.other.steps, c.reference.repeated,
      c.other.repeated, c.reference.alike, c.other.alike, c.reference.truncated, c.other.truncated, c.reference.looped,
      c.other.looped);
  if (compared.serving_penalty) out += fmt::format("serving penalty   {:.3f}\n", *compared.serving_penalty);
  for (const LengthBin& b : c.by_length)
    out += fmt::format("{:5} to {:5}    {:.4f} -> {:.4f}   ({})\n", b.from, b.to, b.reference, b.other,
                       counted(b.samples, "sample"));
  return out;
}

}  // namespace halfbyte::tools
