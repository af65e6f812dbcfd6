#include "text/stop_matcher.h"

#include <fmt/format.h>

#include <utility>

#include "base/quote.h"
#include "base/utf8.h"

namespace halfbyte {

Result<std::shared_ptr<const StopSet>> StopSet::create(std::vector<std::string> stops) {
  std::shared_ptr<StopSet> set(new StopSet);
  set->stops_ = std::move(stops);
  std::vector<Node>& nodes = set->nodes_;
  nodes.resize(1);
  for (size_t i = 0; i < set->stops_.size(); ++i) {
    const std::string& stop = set->stops_[i];
    if (stop.empty()) return invalid_argument(fmt::format("stop string {} is empty", i));
    if (find_invalid_utf8(stop)) return invalid_argument(fmt::format("stop string {} is not UTF-8", quote(stop)));
    int32_t node = 0;
    for (const char byte : stop) {
      int32_t next = set->child(node, byte);
      if (next < 0) {
        next = static_cast<int32_t>(nodes.size());
        Node& parent = nodes[static_cast<size_t>(node)];
        const Node added = {-1, parent.first_child, 0, -1, static_cast<int32_t>(i), parent.depth + 1, byte};
        parent.first_child = next;
        nodes.push_back(added);
      }
      node = next;
    }
    if (nodes[static_cast<size_t>(node)].match < 0) nodes[static_cast<size_t>(node)].match = static_cast<int32_t>(i);
  }
  // Breadth first: a node's fail link is nearer to the start than the node.
  std::vector<int32_t> order = {0};
  for (size_t i = 0; i < order.size(); ++i) {
    const int32_t node = order[i];
    for (int32_t c = nodes[static_cast<size_t>(node)].first_child; c >= 0;
         c = nodes[static_cast<size_t>(c)].next_sibling) {
      Node& target = nodes[static_cast<size_t>(c)];
      target.fail = node == 0 ? 0 : set->next(nodes[static_cast<size_t>(node)].fail, target.byte);
      if (target.match < 0) target.match = nodes[static_cast<size_t>(target.fail)].match;
      order.push_back(c);
    }
  }
  return std::shared_ptr<const StopSet>(std::move(set));
}

int32_t StopSet::child(int32_t node, char byte) const {
  for (int32_t c = nodes_[static_cast<size_t>(node)].first_child; c >= 0;
       c = nodes_[static_cast<size_t>(c)].next_sibling) {
    if (nodes_[static_cast<size_t>(c)].byte == byte) return c;
  }
  return -1;
}

int32_t StopSet::next(int32_t node, char byte) const {
  while (true) {
    if (const int32_t c = child(node, byte); c >= 0) return c;
    if (node == 0) return 0;
    node = nodes_[static_cast<size_t>(node)].fail;
  }
}

std::string_view StopMatcher::held() const {
  const StopSet::Node& node = set_->nodes_[static_cast<size_t>(node_)];
  if (node.depth == 0) return {};
  return std::string_view(set_->stops_[static_cast<size_t>(node.stop)]).substr(0, static_cast<size_t>(node.depth));
}

bool StopMatcher::push(std::string_view text, std::string& out) {
  if (found_ >= 0) return true;
  out += held();  // so that `out` ends with the node's path at every step
  for (const char byte : text) {
    out.push_back(byte);
    node_ = set_->next(node_, byte);
    found_ = set_->nodes_[static_cast<size_t>(node_)].match;
    if (found_ < 0) continue;
    node_ = 0;
    if (!include_stop_) out.resize(out.size() - set_->stops_[static_cast<size_t>(found_)].size());
    return true;
  }
  out.resize(out.size() - held().size());
  return false;
}

void StopMatcher::flush(std::string& out) {
  out += held();
  node_ = 0;
}

std::optional<size_t> StopMatcher::found() const {
  if (found_ < 0) return std::nullopt;
  return static_cast<size_t>(found_);
}

}  // namespace halfbyte
