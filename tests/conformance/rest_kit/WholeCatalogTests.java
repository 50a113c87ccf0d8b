package org.apache.iceberg.rest;

import org.apache.iceberg.catalog.Namespace;
import org.junit.jupiter.api.BeforeEach;

/** The kit's tests of tables, those included that it leaves out. */
public class WholeCatalogTests extends RESTCompatibilityKitCatalogTests {
  /** The kit clears what is at the top alone. */
  @BeforeEach
  void clearNested() {
    catalog().listNamespaces().forEach(this::clear);
  }

  private void clear(Namespace namespace) {
    catalog().listNamespaces(namespace).forEach(this::clear);
    catalog().dropNamespace(namespace);
  }

  @Override
  protected boolean supportsNestedNamespaces() {
    return true;
  }

  @Override
  protected boolean supportsEmptyNamespace() {
    return true;
  }

  @Override
  protected boolean supportsNamesWithDot() {
    return true;
  }

  @Override
  protected boolean supportsNamesWithSlashes() {
    return true;
  }
}
