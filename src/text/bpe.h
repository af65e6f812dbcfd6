// Byte-pair encoding: the vocabulary, the merges, and the encoding of one piece.
//
// Encoding a piece starts with one token a byte (SentencePiece's vocabularies: a character) and joins, again and again, the
// neighbours whose merge has the lowest rank (the leftmost pair among equals), until no neighbours have a merge.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace halfbyte {

// What an encoding did, so that tests can bound the work without a clock.
struct BpeWork {
  uint64_t pair_lookups = 0;
  uint64_t ranks_compared = 0;  // short pieces: linear searches for the lowest rank
  uint64_t queue_pushes = 0;    // long pieces
  uint64_t whole_pieces = 0;    // pieces that were a token, found without merging
  uint64_t merged_pieces = 0;
};

// Merges that wait, the lowest rank first, then the leftmost. What is pushed while a sorted run is being taken goes to
// a heap; when the run is used up, the heap is sorted into the next one. Most merges are thus taken from a sorted run,
// in the order of memory: measured on 10 MB of one letter, half the time of a heap alone.
class MergeQueue {
 public:
  void push(uint32_t rank, uint32_t at);
  bool pop(uint32_t& rank, uint32_t& at);  // false when empty
  void clear();

 private:
  std::vector<uint64_t> sorted_;  // rank << 32 | position
  size_t next_ = 0;               // what is left of the run
  std::vector<uint64_t> heap_;
};

// Working memory of one thread's encodings; kept between pieces.
struct BpeScratch {
  struct Symbol {  // of a long piece
    int32_t id;
    uint32_t rank;  // of the merge with the next symbol; kNoMerge if none
    uint32_t previous, next;
  };
  std::vector<int32_t> ids;
  std::vector<Symbol> symbols;
  MergeQueue queue;
  BpeWork work;
};

// How a vocabulary writes its tokens.
enum class BpeSpelling : uint8_t {
  kByteLevel,      // GPT-2's alphabet, one character a byte: "Ġthe"
  kSentencePiece,  // plain text with "▁" (U+2581) for a space, and "<0x0A>" for a byte that no character of it has
};

// Thread-safe after build().
class BpeModel {
 public:
  class Builder;

  static constexpr uint32_t kNoMerge = UINT32_MAX;
  static constexpr int32_t kNoToken = -1;

  // Appends the tokens of `piece` (any bytes, below 4 GiB; kSentencePiece: UTF-8, with spaces as spaces). A byte, or a
  // character with one, that the vocabulary lacks gives the unknown token, or nothing if there is none (SmolLM2's
  // vocabulary lacks some control characters): what the tokenizers package does.
  void encode(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& out) const;

  // The token with these bytes that text can become.
  std::optional<int32_t> find(std::string_view bytes) const;
  // The bytes that a token of the vocabulary stands for; empty for an id without one.
  std::string_view token_bytes(int32_t id) const {
    return id >= 0 && id < vocab_size() ? bytes_of(spans_[static_cast<size_t>(id)]) : std::string_view();
  }
  int32_t vocab_size() const { return static_cast<int32_t>(spans_.size()); }  // largest id + 1
  // Bytes without a token of their own.
  std::vector<uint8_t> missing_bytes() const;

 private:
  struct Span {
    uint32_t begin = 0;
    uint32_t length = 0;
  };
  struct Slot {  // of the hash table from bytes to ids; with the span, to save a look into spans_
    uint32_t tag = 0;
    int32_t id = kNoToken;
    Span span;
  };
  struct MergeSlot {  // of the hash table from pairs to ranks
    int32_t left = kNoToken;
    int32_t right = kNoToken;
    uint32_t rank = kNoMerge;
  };
  // Whether merging a token's own bytes gives the token back, found at its first use.
  enum Reachable : uint8_t { kUnknown, kYes, kNo };

  BpeModel() = default;
  std::optional<int32_t> find(std::string_view bytes, uint64_t hash) const;
  std::string_view bytes_of(Span span) const { return {arena_.data() + span.begin, span.length}; }
  uint32_t rank_of(int32_t left, int32_t right, BpeWork& work) const;
  void merge(std::string_view piece, BpeScratch& scratch) const;  // into scratch.ids
  void first_ids(std::string_view piece, std::vector<int32_t>& ids) const;
  void first_characters(std::string_view piece, std::vector<int32_t>& ids) const;
  void merge_short(std::string_view piece, BpeScratch& scratch) const;
  void merge_long(BpeScratch& scratch) const;
  void fill_byte_ranks();

  uint64_t seed_ = 0;
  std::string arena_;                   // all tokens' bytes
  std::vector<Span> spans_;             // by id, into arena_
  std::vector<Slot> slots_;             // a power of two
  std::vector<MergeSlot> merge_slots_;  // a power of two
  std::vector<int32_t> merged_;         // by rank: the token that the merge makes
  std::array<int32_t, 256> byte_ids_{};
  std::vector<uint32_t> byte_ranks_;                   // [256, 256]: of the merge of two bytes' tokens
  std::unique_ptr<std::atomic<uint8_t>[]> reachable_;  // by id
  int32_t unk_ = kNoToken;
  bool fuse_unk_ = false;
  bool ignore_merges_ = false;
  bool characters_ = false;  // pieces start as characters, not bytes
};

// Collects a vocabulary, then its merges. All text is valid UTF-8. Messages carry no file name; the caller adds it.
class BpeModel::Builder {
 public:
  explicit Builder(BpeSpelling spelling = BpeSpelling::kByteLevel);
  ~Builder();

  void reserve(size_t tokens, size_t merges, size_t text_bytes);
  // A token as files spell it. A byte-level one with a character outside that alphabet is plain text that no encoding
  // reaches.
  Status add_token(int32_t id, std::string_view text);
  // An added token, after all tokens of the vocabulary. It may repeat one of them, then with the same id and text; else
  // it takes part in decoding only.
  Status add_added_token(int32_t id, std::string_view text);
  // After the last token: "Ġ t" as two tokens, in order of rank.
  Status add_merge(std::string_view left, std::string_view right);
  // After the last token, in place of merges: SentencePiece's rule, by which any two neighbours that are a token together
  // may merge, the highest score first. One finite number an id.
  Status add_scores(std::span<const float> scores);

  struct Options {
    std::optional<std::string> unk_token;  // as files spell it
    std::optional<int32_t> unk_id = {};    // the same where a file has its id
    bool fuse_unk = false;                 // neighbouring unknown bytes give one unknown token
    bool ignore_merges = false;            // a piece that is a token is that token, whatever the merges say
  };
  Result<std::unique_ptr<const BpeModel>> build(const Options& options);

 private:
  Status seal();  // after the last token
  // Appends what the token stands for; false if it is not in the byte-level alphabet.
  bool append_spelt(std::string_view text, std::string& out) const;

  struct MergeTexts {  // a merge as bytes_[begin, middle) and [middle, end)
    size_t begin = 0, middle = 0, end = 0;
    uint64_t left_hash = 0, right_hash = 0;
    int32_t left = kNoToken, right = kNoToken;
  };
  Status flush_merges();
  Status find_ids(MergeTexts& merge);
  void insert_merge(int32_t left, int32_t right, uint32_t rank);
  void grow_merges(size_t count);

  enum class Kind : uint8_t { kEncodable, kPlain, kByte, kAdded };
  struct Pending {
    int32_t id;
    uint32_t begin, length;
    Kind kind;
  };
  Status add_text(int32_t id, std::string_view text, Kind kind);
  Status check_added(const Pending& token);
  void add_splits(int32_t id, uint32_t rank);
  std::unique_ptr<BpeModel> model_;
  std::vector<Pending> pending_;
  bool sealed_ = false;
  std::vector<bool> encodable_;  // by id
  size_t splits_ = 0;            // merges that scores gave
  std::vector<MergeTexts> batch_;
  std::string bytes_;  // of the batch
};

// The byte-level alphabet of GPT-2: one printable character for each byte. Replaces `out` by the bytes that `text`
// spells; false if a character is outside the alphabet.
bool bytes_from_alphabet(std::string_view text, std::string& out);

// Appends text with SentencePiece's marks ("▁") as the spaces that they stand for.
void append_with_spaces(std::string_view text, std::string& out);

}  // namespace halfbyte
