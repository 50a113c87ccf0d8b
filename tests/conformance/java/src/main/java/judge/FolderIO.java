package judge;

import java.nio.file.Path;
import java.util.Map;
import org.apache.iceberg.Files;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.io.OutputFile;
import org.apache.iceberg.io.PositionOutputStream;
import org.apache.iceberg.io.SeekableInputStream;

/**
 * Files below one made-up location, kept in a folder: `io.root` is the location, `io.folder` where
 * it lies. So what is written names no path of the machine that wrote it.
 */
public class FolderIO implements FileIO {
  private String root;
  private Path folder;

  public FolderIO() {}

  @Override
  public void initialize(Map<String, String> properties) {
    this.root = properties.get("io.root");
    this.folder = Path.of(properties.get("io.folder"));
  }

  private Path path(String location) {
    if (!location.startsWith(root + "/")) {
      throw new IllegalArgumentException(location + " is not below " + root);
    }
    return folder.resolve(location.substring(root.length() + 1));
  }

  @Override
  public InputFile newInputFile(String location) {
    InputFile file = Files.localInput(path(location).toFile());
    return new InputFile() {
      @Override
      public long getLength() {
        return file.getLength();
      }

      @Override
      public SeekableInputStream newStream() {
        return file.newStream();
      }

      @Override
      public String location() {
        return location;
      }

      @Override
      public boolean exists() {
        return file.exists();
      }
    };
  }

  @Override
  public OutputFile newOutputFile(String location) {
    path(location).getParent().toFile().mkdirs();
    OutputFile file = Files.localOutput(path(location).toFile());
    return new OutputFile() {
      @Override
      public PositionOutputStream create() {
        return file.create();
      }

      @Override
      public PositionOutputStream createOrOverwrite() {
        return file.createOrOverwrite();
      }

      @Override
      public String location() {
        return location;
      }

      @Override
      public InputFile toInputFile() {
        return newInputFile(location);
      }
    };
  }

  @Override
  public void deleteFile(String location) {
    if (!path(location).toFile().delete()) {
      throw new IllegalStateException("cannot delete " + location);
    }
  }
}
