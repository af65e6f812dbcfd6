// Wrong paths: what was looked for, what is there, what to do.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "io/model_source.h"
#include "io/read_file.h"
#include "io/tokenizer_source.h"
#include "support/expect_status.h"
#include "support/gguf_file.h"
#include "support/safetensors_file.h"
#include "support/temp_folder.h"

namespace halfbyte {
namespace {

using testing::expect_failure;
using testing::SafetensorsFile;
using testing::TempFolder;

constexpr const char* kConfig =
    R"({"architectures":["LlamaForCausalLM"],"hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,"num_attention_heads":4,"vocab_size":100,"max_position_embeddings":4096})";

TEST(Locate, NothingThere) {
  const TempFolder folder;
  const auto missing = StatusCode::kNotFound;
  expect_failure(open_model_source(folder / "none"), missing,
                 {folder / "none", "no such file or folder", "expected a Hugging Face folder or a .gguf file"});
  expect_failure(open_model_source(folder.path()), missing,
                 {folder.path(), "looked for model.safetensors, model.safetensors.index.json and one .gguf file",
                  "there: nothing"});
  folder.write("README.md", "x");
  std::filesystem::create_directory(folder / "sub");
  expect_failure(open_model_source(folder.path()), missing,
                 {"there: README.md, sub/", "name the folder of a downloaded model"});
}

TEST(Locate, OtherFormats) {
  const TempFolder folder;
  folder.write("pytorch_model.bin", "x");
  expect_failure(open_model_source(folder.path()), StatusCode::kNotFound,
                 {"there: pytorch_model.bin", "PyTorch pickles are not read", "save_pretrained"});
  const TempFolder other;
  other.write("weights.safetensors", SafetensorsFile().str());
  expect_failure(open_tensor_source(other.path()), StatusCode::kNotFound,
                 {"there: weights.safetensors", "have other names"});
  EXPECT_TRUE(open_tensor_source(other / "weights.safetensors").ok());
  expect_failure(open_model_source(other.write("notes.txt", "hello")), StatusCode::kInvalidData,
                 {"notes.txt", "starts with 'hell'", "a .gguf file (starts with 'GGUF')"});
  expect_failure(open_model_source(other.write("empty.gguf", "")), StatusCode::kInvalidData, {"empty.gguf"});
}

TEST(Locate, FolderWithGguf) {
  const TempFolder folder;
  folder.write("a.gguf", testing::tiny_gguf());
  HB_ASSERT_OK(const ModelSource source, open_model_source(folder.path()));
  EXPECT_EQ(source.kind(), "GGUF v3");
  folder.write("b.gguf", testing::tiny_gguf());
  expect_failure(open_model_source(folder.path()), StatusCode::kInvalidArgument,
                 {"2 GGUF files (a.gguf, b.gguf)", "name one of them"});
  // By its first bytes, whatever its name.
  EXPECT_TRUE(open_model_source(folder.write("model.download", testing::tiny_gguf())).ok());
}

TEST(Locate, HuggingFaceFolder) {
  const TempFolder folder;
  folder.write("model.safetensors", SafetensorsFile().add_zeros("x", "F32", {1}).str());
  expect_failure(open_model_source(folder.path()), StatusCode::kNotFound, {folder.path(), "no config.json"});
  folder.write("config.json", kConfig);
  HB_ASSERT_OK(const ModelSource source, open_model_source(folder.path()));
  EXPECT_EQ(source.kind(), "Hugging Face folder");
  EXPECT_EQ(source.folder, folder.path());
  // Its files name the model too.
  EXPECT_TRUE(open_model_source(folder / "config.json").ok());
  EXPECT_TRUE(open_model_source(folder / "model.safetensors").ok());
  EXPECT_TRUE(open_model_source(folder.path() + "/").ok());
  folder.write("hf_quant_config.json", R"({"quantization":{"quant_algo":"NVFP4"}})");
  EXPECT_EQ(open_model_source(folder.path())->kind(), "ModelOpt NVFP4 folder");
  // The architecture is named before damaged weights are.
  folder.write("config.json", R"({"architectures":["MambaForCausalLM"]})");
  folder.write("model.safetensors", "broken");
  expect_failure(open_model_source(folder.path()), StatusCode::kUnsupported, {"'MambaForCausalLM'"});
}

// Half a cache of the hub: links whose files are gone. Such a file is missing, not absent, whichever it is.
TEST(Locate, LinksToNothingAreNoAbsentFiles) {
  for (const char* name : {"config.json", "generation_config.json", "tokenizer_config.json", "chat_template.jinja",
                           "tokenizer.json", "special_tokens_map.json"}) {
    const TempFolder folder;
    std::filesystem::create_symlink("../../blobs/abc", folder / name);
    expect_failure(read_small_file(folder / name), StatusCode::kInvalidData,
                   {name, "is a link to '../../blobs/abc'", "download the model again"});
    if (std::string_view(name) == "tokenizer.json")
      expect_failure(open_tokenizer_source(folder.path()), StatusCode::kInvalidData, {"is a link to"});
  }
  const TempFolder folder;
  std::filesystem::create_directory(folder / "tokenizer.json");
  expect_failure(open_tokenizer_source(folder.path()), StatusCode::kInvalidData,
                 {"tokenizer.json", "is not a regular file"});
}

// The folder is what is told, also when its config.json was named.
TEST(Locate, AConfigurationWithoutWeightsSaysWhatIsThere) {
  const TempFolder folder;
  folder.write("config.json", "{}");
  expect_failure(open_tensor_source(folder / "config.json"), StatusCode::kNotFound, {"there: config.json"});
}

// A pipe in the place of a file must not hang.
TEST(Locate, PipesAreNoFiles) {
  const TempFolder folder;
  ASSERT_EQ(mkfifo((folder / "config.json").c_str(), 0600), 0);
  folder.write("model.safetensors", SafetensorsFile().str());
  expect_failure(open_model_source(folder.path()), StatusCode::kInvalidData, {"config.json", "not a regular file"});
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  expect_failure(open_model_source(folder / "pipe"), StatusCode::kInvalidData, {"neither a file nor a folder"});
}

}  // namespace
}  // namespace halfbyte
