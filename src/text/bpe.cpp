#include "text/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <utility>

#include "base/quote.h"
#include "text/utf8_scan.h"

namespace halfbyte {
namespace {

// Pieces up to this many bytes search linearly for the lowest rank; measured to be faster than a heap.
constexpr size_t kShortPiece = 64;

constexpr size_t kMergeBatch = 64;

// Vocabularies and texts come from strangers: a seed that they cannot know keeps them from choosing keys that collide.
// Results do not depend on it.
uint64_t make_hash_seed() {
  std::random_device device;
  return uint64_t{device()} << 32 ^ device();
}

uint64_t mix(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

template <class T>
uint64_t load(const char* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

uint64_t hash_bytes(std::string_view bytes, uint64_t seed) {
  constexpr uint64_t kOdd1 = 0x9E3779B97F4A7C15, kOdd2 = 0xD1B54A32D192ED03;
  const char* p = bytes.data();
  size_t n = bytes.size();
  uint64_t h = seed ^ n;
  for (; n > 8; n -= 8, p += 8) h = mix(h ^ load<uint64_t>(p), kOdd1);
  uint64_t tail = 0;
  if (n == 8) {
    tail = load<uint64_t>(p);
  } else if (n >= 4) {
    tail = load<uint32_t>(p) << 32 | load<uint32_t>(p + n - 4);
  } else if (n > 0) {
    tail = load<uint8_t>(p) << 16 | load<uint8_t>(p + n / 2) << 8 | load<uint8_t>(p + n - 1);
  }
  return mix(h ^ tail, kOdd2);
}

uint64_t hash_pair(int32_t left, int32_t right, uint64_t seed) {
  const uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  return mix(key ^ seed, 0x9E3779B97F4A7C15);
}

// A power of two that `count` entries fill to at most 60%.
size_t table_size(size_t count) {
  size_t size = 16;
  while (size * 6 < count * 10) size *= 2;
  return size;
}

constexpr uint32_t kAlphabetEnd = 0x144;

// By code point: the byte that the character spells, or -1. Printable Latin-1 characters stand for themselves; the
// other bytes, in order, are U+0100, U+0101, ...
std::array<int16_t, kAlphabetEnd> make_alphabet() {
  std::array<int16_t, kAlphabetEnd> bytes;
  bytes.fill(-1);
  uint32_t next = 0x100;
  for (int16_t b = 0; b < 256; ++b) {
    const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    bytes[printable ? static_cast<uint32_t>(b) : next++] = b;
  }
  return bytes;
}

// Appends the bytes; on false, some may have been appended.
bool append_alphabet_bytes(std::string_view text, std::string& out) {
  static const std::array<int16_t, kAlphabetEnd> alphabet = make_alphabet();
  const char* p = text.data();
  const char* const end = p + text.size();
  while (p < end) {
    const uint32_t c = utf8_next(p);
    if (c >= kAlphabetEnd || alphabet[c] < 0) return false;
    out.push_back(static_cast<char>(alphabet[c]));
  }
  return true;
}

// The byte of "<0x0A>", else -1.
int byte_token(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  int byte = 0;
  const auto [end, failure] = std::from_chars(text.data() + 3, text.data() + 5, byte, 16);
  return failure == std::errc() && end == text.data() + 5 ? byte : -1;
}

// Splits of a token cost its length squared to look at; real tokens are below 100 bytes.
constexpr size_t kMaxScoredToken = 512;

}  // namespace

void append_with_spaces(std::string_view text, std::string& out) {
  constexpr std::string_view kMark = "\u2581";
  for (size_t at; (at = text.find(kMark)) != std::string_view::npos; text.remove_prefix(at + kMark.size())) {
    out.append(text, 0, at);
    out.push_back(' ');
  }
  out += text;
}

bool bytes_from_alphabet(std::string_view text, std::string& out) {
  out.clear();
  return append_alphabet_bytes(text, out);
}

std::optional<int32_t> BpeModel::find(std::string_view bytes) const {
  return find(bytes, hash_bytes(bytes, seed_));
}

std::optional<int32_t> BpeModel::find(std::string_view bytes, uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  const auto tag = static_cast<uint32_t>(hash >> 32);
  for (size_t i = hash & mask; slots_[i].id != kNoToken; i = (i + 1) & mask) {
    if (slots_[i].tag == tag && bytes_of(slots_[i].span) == bytes) return slots_[i].id;
  }
  return std::nullopt;
}

std::vector<uint8_t> BpeModel::missing_bytes() const {
  std::vector<uint8_t> missing;
  for (size_t b = 0; b < byte_ids_.size(); ++b) {
    if (byte_ids_[b] == kNoToken) missing.push_back(static_cast<uint8_t>(b));
  }
  return missing;
}

uint32_t BpeModel::rank_of(int32_t left, int32_t right, BpeWork& work) const {
  ++work.pair_lookups;
  const size_t mask = merge_slots_.size() - 1;
  for (size_t i = hash_pair(left, right, seed_) & mask;; i = (i + 1) & mask) {
    const MergeSlot& slot = merge_slots_[i];
    if (slot.left == left && slot.right == right) return slot.rank;
    if (slot.left == kNoToken) return kNoMerge;
  }
}

void BpeModel::encode(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& out) const {
  if (const std::optional<int32_t> id = find(piece)) {
    std::atomic<uint8_t>& reachable = reachable_[static_cast<size_t>(*id)];
    uint8_t state = reachable.load(std::memory_order_relaxed);
    if (ignore_merges_) state = kYes;
    if (state == kUnknown) {
      // Two threads may both find out; they find the same.
      merge(piece, scratch);
      state = scratch.ids.size() == 1 && scratch.ids[0] == *id ? kYes : kNo;
      reachable.store(state, std::memory_order_relaxed);
    }
    if (state == kYes) {
      ++scratch.work.whole_pieces;
      out.push_back(*id);
      return;
    }
  }
  ++scratch.work.merged_pieces;
  merge(piece, scratch);
  out.insert(out.end(), scratch.ids.begin(), scratch.ids.end());
}

// A character that is no token is its bytes where all of them have tokens.
void BpeModel::first_characters(std::string_view piece, std::vector<int32_t>& ids) const {
  const char* p = piece.data();
  const char* const end = p + piece.size();
  bool last_unknown = false;
  while (p < end) {
    const char* next = p;
    utf8_next(next);
    const std::string_view character(p, static_cast<size_t>(next - p));
    p = next;
    bool unknown = false;
    if (const auto id = find(character)) {
      ids.push_back(*id);
    } else {
      for (const char c : character) unknown = unknown || byte_ids_[static_cast<unsigned char>(c)] == kNoToken;
      if (!unknown)
        for (const char c : character) ids.push_back(byte_ids_[static_cast<unsigned char>(c)]);
      else if (unk_ != kNoToken && !(fuse_unk_ && last_unknown))
        ids.push_back(unk_);
    }
    last_unknown = unknown;
  }
}

void BpeModel::first_ids(std::string_view piece, std::vector<int32_t>& ids) const {
  ids.clear();
  if (characters_) return first_characters(piece, ids);
  bool last_unknown = false;
  for (const char c : piece) {
    const int32_t id = byte_ids_[static_cast<unsigned char>(c)];
    if (id != kNoToken) {
      ids.push_back(id);
    } else if (unk_ != kNoToken && !(fuse_unk_ && last_unknown)) {
      ids.push_back(unk_);
    }
    last_unknown = id == kNoToken;
  }
}

void BpeModel::merge(std::string_view piece, BpeScratch& scratch) const {
  first_ids(piece, scratch.ids);
  if (scratch.ids.size() <= kShortPiece) {
    merge_short(piece, scratch);
  } else {
    merge_long(scratch);
  }
}

void BpeModel::merge_short(std::string_view piece, BpeScratch& scratch) const {
  std::vector<int32_t>& ids = scratch.ids;
  std::array<uint32_t, kShortPiece> ranks;  // of the merge of i and i + 1
  size_t pairs = ids.empty() ? 0 : ids.size() - 1;
  if (ids.size() == piece.size() && unk_ == kNoToken && !characters_) {  // one token a byte
    for (size_t i = 0; i < pairs; ++i) {
      ranks[i] = byte_ranks_[static_cast<unsigned char>(piece[i]) * 256u + static_cast<unsigned char>(piece[i + 1])];
    }
  } else {
    for (size_t i = 0; i < pairs; ++i) ranks[i] = rank_of(ids[i], ids[i + 1], scratch.work);
  }
  while (pairs > 0) {
    size_t best = 0;
    for (size_t i = 1; i < pairs; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    scratch.work.ranks_compared += pairs;
    if (ranks[best] == kNoMerge) break;
    ids[best] = merged_[ranks[best]];
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
    std::copy(ranks.begin() + best + 1, ranks.begin() + pairs, ranks.begin() + best);
    --pairs;
    if (best < pairs) ranks[best] = rank_of(ids[best], ids[best + 1], scratch.work);
    if (best > 0) ranks[best - 1] = rank_of(ids[best - 1], ids[best], scratch.work);
  }
}

// Every merge begins with pairs of bytes: a table of their own stays in the near caches (measured: 15% on mixed text).
void BpeModel::fill_byte_ranks() {
  constexpr int16_t kNoByte = -1;
  std::vector<int16_t> byte_of(spans_.size(), kNoByte);
  for (size_t b = 0; b < byte_ids_.size(); ++b) {
    if (byte_ids_[b] != kNoToken) byte_of[static_cast<size_t>(byte_ids_[b])] = static_cast<int16_t>(b);
  }
  byte_ranks_.assign(256 * 256, kNoMerge);
  for (const MergeSlot& slot : merge_slots_) {
    if (slot.left == kNoToken) continue;
    const int16_t left = byte_of[static_cast<size_t>(slot.left)], right = byte_of[static_cast<size_t>(slot.right)];
    if (left != kNoByte && right != kNoByte) byte_ranks_[static_cast<size_t>(left * 256 + right)] = slot.rank;
  }
}

// A doubly linked list of symbols and a queue of merges. A merge in the queue whose symbol has another rank by now is
// stale and dropped, so each of the n - 1 joins costs O(log n).
void BpeModel::merge_long(BpeScratch& scratch) const {
  using Symbol = BpeScratch::Symbol;
  std::vector<Symbol>& symbols = scratch.symbols;
  MergeQueue& queue = scratch.queue;
  const auto count = static_cast<uint32_t>(scratch.ids.size());
  symbols.resize(count);
  queue.clear();
  const auto enter = [&](uint32_t at) {
    Symbol& symbol = symbols[at];
    symbol.rank = symbol.next < count ? rank_of(symbol.id, symbols[symbol.next].id, scratch.work) : kNoMerge;
    if (symbol.rank == kNoMerge) return;
    queue.push(symbol.rank, at);
    ++scratch.work.queue_pushes;
  };
  for (uint32_t i = 0; i < count; ++i) symbols[i] = {scratch.ids[i], kNoMerge, i - 1, i + 1};
  for (uint32_t i = 0; i < count; ++i) enter(i);
  uint32_t rank, at;
  while (queue.pop(rank, at)) {
    Symbol& left = symbols[at];
    if (left.rank != rank) continue;
    Symbol& right = symbols[left.next];
    left.id = merged_[rank];
    left.next = right.next;
    right.rank = kNoMerge;
    if (left.next < count) symbols[left.next].previous = at;
    enter(at);
    if (at > 0) enter(left.previous);
  }
  scratch.ids.clear();
  for (uint32_t i = 0; i < count; i = symbols[i].next) scratch.ids.push_back(symbols[i].id);
}

void MergeQueue::push(uint32_t rank, uint32_t at) {
  heap_.push_back(uint64_t{rank} << 32 | at);
  if (next_ < sorted_.size()) std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

bool MergeQueue::pop(uint32_t& rank, uint32_t& at) {
  if (next_ == sorted_.size()) {
    if (heap_.empty()) return false;
    sorted_.swap(heap_);
    heap_.clear();
    next_ = 0;
    std::sort(sorted_.begin(), sorted_.end());
  }
  uint64_t entry = sorted_[next_];
  if (!heap_.empty() && heap_.front() < entry) {
    entry = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    heap_.pop_back();
  } else {
    ++next_;
  }
  rank = static_cast<uint32_t>(entry >> 32);
  at = static_cast<uint32_t>(entry);
  return true;
}

void MergeQueue::clear() {
  sorted_.clear();
  heap_.clear();
  next_ = 0;
}

BpeModel::Builder::Builder(BpeSpelling spelling) : model_(new BpeModel) {
  model_->seed_ = make_hash_seed();
  model_->characters_ = spelling == BpeSpelling::kSentencePiece;
  model_->byte_ids_.fill(kNoToken);
}
BpeModel::Builder::~Builder() = default;

void BpeModel::Builder::reserve(size_t tokens, size_t merges, size_t text_bytes) {
  pending_.reserve(tokens);
  model_->merged_.reserve(merges);
  model_->merge_slots_.assign(table_size(merges), {});
  model_->arena_.reserve(text_bytes);
}

bool BpeModel::Builder::append_spelt(std::string_view text, std::string& out) const {
  if (!model_->characters_) return append_alphabet_bytes(text, out);
  append_with_spaces(text, out);
  return true;
}

Status BpeModel::Builder::add_token(int32_t id, std::string_view text) {
  const size_t begin = model_->arena_.size();
  if (const int byte = model_->characters_ ? byte_token(text) : -1; byte >= 0) {
    const char c = static_cast<char>(byte);
    if (id >= 0) model_->byte_ids_[static_cast<size_t>(byte)] = id;
    return add_text(id, {&c, 1}, Kind::kByte);
  }
  if (!append_spelt(text, model_->arena_)) {
    model_->arena_.resize(begin);
    return add_text(id, text, Kind::kPlain);
  }
  if (id < 0) return invalid_data(fmt::format("token {} has the negative id {}", quote(text), id));
  const auto length = static_cast<uint32_t>(model_->arena_.size() - begin);
  pending_.push_back({id, static_cast<uint32_t>(begin), length, Kind::kEncodable});
  return {};
}

Status BpeModel::Builder::add_added_token(int32_t id, std::string_view text) {
  return add_text(id, text, Kind::kAdded);
}

Status BpeModel::Builder::add_text(int32_t id, std::string_view text, Kind kind) {
  if (id < 0) return invalid_data(fmt::format("token {} has the negative id {}", quote(text), id));
  const size_t begin = model_->arena_.size();
  model_->arena_ += text;
  pending_.push_back({id, static_cast<uint32_t>(begin), static_cast<uint32_t>(text.size()), kind});
  return {};
}

// An added token that the vocabulary has too must be the same there.
Status BpeModel::Builder::check_added(const Pending& token) {
  const std::string_view text = std::string_view(model_->arena_).substr(token.begin, token.length);
  bytes_.clear();
  // A space that is written as one is no mark: such a text is not in SentencePiece's vocabulary.
  const bool plain = model_->characters_ && text.find(' ') != std::string_view::npos;
  const bool in_alphabet = !plain && append_spelt(text, bytes_);
  const std::optional<int32_t> known = in_alphabet ? model_->find(bytes_) : std::nullopt;
  if (known && *known != token.id) {
    return invalid_data(
        fmt::format("added token {} has the id {}, but the vocabulary has it as {}", quote(text), token.id, *known));
  }
  const std::string_view other = model_->token_bytes(token.id);
  if (!other.empty() && other != text && !known) {
    return invalid_data(fmt::format("added token {} has the id {}, which is {} in the vocabulary", quote(text),
                                    token.id, quote(other)));
  }
  return {};
}

Status BpeModel::Builder::seal() {
  if (sealed_) return {};
  sealed_ = true;
  BpeModel& model = *model_;
  if (model.arena_.size() > UINT32_MAX) return unsupported("the vocabulary has more than 4 GiB of text");
  int32_t largest = -1;
  for (const Pending& token : pending_) largest = std::max(largest, token.id);
  // A padded vocabulary has gaps; one wild id must not cost gigabytes.
  if (static_cast<size_t>(largest + 1) > pending_.size() * 4 + 65536) {
    return invalid_data(
        fmt::format("the largest token id is {}, but there are only {} tokens", largest, pending_.size()));
  }
  model.spans_.resize(static_cast<size_t>(largest + 1));
  model.slots_.assign(table_size(pending_.size()), {});
  encodable_.resize(model.spans_.size());
  const size_t mask = model.slots_.size() - 1;
  for (const Pending& token : pending_) {
    Span& span = model.spans_[static_cast<size_t>(token.id)];
    if (token.kind == Kind::kAdded) {
      HB_TRY(check_added(token));
    } else if (span.length > 0) {
      return invalid_data(fmt::format("two tokens have the id {}: {} and {}", token.id,
                                      quote(model.token_bytes(token.id)),
                                      quote(std::string_view(model.arena_).substr(token.begin, token.length))));
    }
    span = {token.begin, token.length};
    if (token.kind != Kind::kEncodable || token.length == 0) continue;
    const std::string_view bytes = model.token_bytes(token.id);
    const uint64_t hash = hash_bytes(bytes, model.seed_);
    size_t i = hash & mask;
    const auto tag = static_cast<uint32_t>(hash >> 32);
    while (model.slots_[i].id != kNoToken &&
           !(model.slots_[i].tag == tag && model.bytes_of(model.slots_[i].span) == bytes)) {
      i = (i + 1) & mask;
    }
    model.slots_[i] = {tag, token.id, span};
    encodable_[static_cast<size_t>(token.id)] = true;
  }
  pending_ = {};
  bytes_.clear();
  for (size_t b = 0; b < 256 && !model.characters_; ++b) {
    const char byte = static_cast<char>(b);
    model.byte_ids_[b] = model.find({&byte, 1}).value_or(kNoToken);
  }
  return {};
}

void BpeModel::Builder::insert_merge(int32_t left, int32_t right, uint32_t rank) {
  std::vector<MergeSlot>& slots = model_->merge_slots_;
  const size_t mask = slots.size() - 1;
  size_t i = hash_pair(left, right, model_->seed_) & mask;
  while (slots[i].left != kNoToken && !(slots[i].left == left && slots[i].right == right)) i = (i + 1) & mask;
  // Of a pair that is listed twice the last rank counts, as in the tokenizers package.
  slots[i] = {left, right, rank};
}

void BpeModel::Builder::grow_merges(size_t count) {
  std::vector<MergeSlot>& slots = model_->merge_slots_;
  if (count * 10 <= slots.size() * 6) return;
  const std::vector<MergeSlot> old = std::exchange(slots, std::vector<MergeSlot>(table_size(count * 2)));
  for (const MergeSlot& slot : old) {
    if (slot.left != kNoToken) insert_merge(slot.left, slot.right, slot.rank);
  }
}

Status BpeModel::Builder::add_merge(std::string_view left, std::string_view right) {
  HB_TRY(seal());
  MergeTexts& merge = batch_.emplace_back();
  merge.begin = bytes_.size();
  bool in_alphabet = append_spelt(left, bytes_);
  merge.middle = bytes_.size();
  in_alphabet = in_alphabet && append_spelt(right, bytes_);
  merge.end = bytes_.size();
  if (!in_alphabet) {
    return invalid_data(fmt::format("merge {} ({} and {}) is not in the byte-level alphabet",
                                    model_->merged_.size() + batch_.size() - 1, quote(left), quote(right)));
  }
  const std::string_view all = bytes_;
  const size_t mask = model_->slots_.size() - 1;
  merge.left_hash = hash_bytes(all.substr(merge.begin, merge.middle - merge.begin), model_->seed_);
  merge.right_hash = hash_bytes(all.substr(merge.middle, merge.end - merge.middle), model_->seed_);
  __builtin_prefetch(&model_->slots_[merge.left_hash & mask]);
  __builtin_prefetch(&model_->slots_[merge.right_hash & mask]);
  return batch_.size() < kMergeBatch ? Status() : flush_merges();
}

// Enters the ways to make the token out of two.
void BpeModel::Builder::add_splits(int32_t id, uint32_t rank) {
  BpeModel& model = *model_;
  const std::string_view text = model.token_bytes(id);
  const char* p = text.data();
  for (utf8_next(p); p < text.data() + text.size(); utf8_next(p)) {
    const auto middle = static_cast<size_t>(p - text.data());
    const auto left = model.find(text.substr(0, middle)), right = model.find(text.substr(middle));
    if (!left || !right) continue;
    grow_merges(++splits_);
    insert_merge(*left, *right, rank);
  }
}

Status BpeModel::Builder::add_scores(std::span<const float> scores) {
  HB_TRY(seal());
  BpeModel& model = *model_;
  std::vector<int32_t> order;
  for (size_t id = 0; id < model.spans_.size(); ++id) {
    if (!encodable_[id]) continue;
    const std::string_view text = model.token_bytes(static_cast<int32_t>(id));
    if (id >= scores.size() || !std::isfinite(scores[id]))
      return invalid_data(fmt::format("token {} ({}) has no finite score", id, quote(text)));
    if (text.size() > kMaxScoredToken)
      return unsupported(
          fmt::format("token {} ({}) has {} bytes, the limit is {}", id, quote(text), text.size(), kMaxScoredToken));
    order.push_back(static_cast<int32_t>(id));
  }
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
  });
  for (const int32_t id : order) {
    add_splits(id, static_cast<uint32_t>(model.merged_.size()));
    model.merged_.push_back(id);
  }
  return {};
}

// The tables are larger than the caches near the core, so each step first asks for the memory of the next one, for a
// whole batch: a third of the time of reading a vocabulary of 150,000 tokens.
Status BpeModel::Builder::flush_merges() {
  BpeModel& model = *model_;
  const size_t mask = model.slots_.size() - 1;
  for (const MergeTexts& merge : batch_) {
    __builtin_prefetch(model.arena_.data() + model.slots_[merge.left_hash & mask].span.begin);
    __builtin_prefetch(model.arena_.data() + model.slots_[merge.right_hash & mask].span.begin);
  }
  grow_merges(model.merged_.size() + batch_.size());
  const auto first_rank = static_cast<uint32_t>(model.merged_.size());
  for (MergeTexts& merge : batch_) {
    HB_TRY(find_ids(merge));
    const size_t slot = hash_pair(merge.left, merge.right, model.seed_) & (model.merge_slots_.size() - 1);
    __builtin_prefetch(&model.merge_slots_[slot], /*write=*/1);
  }
  uint32_t rank = first_rank;
  for (const MergeTexts& merge : batch_) insert_merge(merge.left, merge.right, rank++);
  batch_.clear();
  bytes_.clear();
  return {};
}

Status BpeModel::Builder::find_ids(MergeTexts& merge) {
  BpeModel& model = *model_;
  const auto text = [&](size_t begin, size_t end) { return std::string_view(bytes_).substr(begin, end - begin); };
  const std::string_view all = text(merge.begin, merge.end);
  const std::optional<int32_t> left = model.find(text(merge.begin, merge.middle), merge.left_hash);
  const std::optional<int32_t> right = model.find(text(merge.middle, merge.end), merge.right_hash);
  // In most vocabularies a merge's token follows the one of the merge before: a look at it is cheaper than a search.
  const int32_t guess = model.merged_.empty() ? 0 : model.merged_.back() + 1;
  std::optional<int32_t> merged = guess;
  if (model.token_bytes(guess) != all || !encodable_[static_cast<size_t>(guess)]) merged = model.find(all);
  if (!left || !right || !merged) {
    const std::string_view missing = !left    ? text(merge.begin, merge.middle)
                                     : !right ? text(merge.middle, merge.end)
                                              : all;
    return invalid_data(fmt::format("merge {} ({} and {}): {} is not a token of the vocabulary", model.merged_.size(),
                                    quote(text(merge.begin, merge.middle)), quote(text(merge.middle, merge.end)),
                                    quote(missing)));
  }
  merge.left = *left;
  merge.right = *right;
  model.merged_.push_back(*merged);
  return {};
}

Result<std::unique_ptr<const BpeModel>> BpeModel::Builder::build(const Options& options) {
  HB_TRY(seal());
  HB_TRY(flush_merges());
  BpeModel& model = *model_;
  if (model.merge_slots_.empty()) model.merge_slots_.resize(table_size(0));
  model.fuse_unk_ = options.fuse_unk;
  model.ignore_merges_ = options.ignore_merges;
  if (options.unk_token) {
    bytes_.clear();
    const auto id = append_spelt(*options.unk_token, bytes_) ? model.find(bytes_) : std::nullopt;
    if (!id)
      return invalid_data(fmt::format("unk_token {} is not a token of the vocabulary", quote(*options.unk_token)));
    model.unk_ = *id;
  } else if (options.unk_id) {
    model.unk_ = *options.unk_id;
  }
  // Text without a token would be lost without a word. Some byte-level vocabularies lack a few control characters.
  const std::vector<uint8_t> missing = model.missing_bytes();
  if (model.unk_ == kNoToken && !model.characters_ && missing.size() == 256)
    return invalid_data("no token is a single byte, so that all text would be lost; this is no byte-level vocabulary");
  if (model.unk_ == kNoToken && model.characters_ && !missing.empty())
    return invalid_data(fmt::format("there is no token '<0x{:02X}>' and no unknown token, so that text would be lost",
                                    missing.front()));
  if (!model.characters_) model.fill_byte_ranks();
  model.reachable_ = std::make_unique<std::atomic<uint8_t>[]>(model.spans_.size());
  return std::unique_ptr<const BpeModel>(std::move(model_));
}

}  // namespace halfbyte
